"""The kernels for CUDA devices, written in Triton."""
