"""A model as a file that runs elsewhere: ONNX, which needs no torch, and torch's own exported programs."""
