"""What this CPU can do: which number types it multiplies fast, and so which one `auto` picks."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

FEW_ROWS, BLOCK = 64, 16


@dataclass(frozen=True, slots=True)
class CpuFeatures:
    """The instructions that matter here."""

    vnni: bool = False  # int8 products summed exactly in int32 (AVX512-VNNI, AVX-VNNI, AMX-int8)
    bfloat16: bool = False  # bfloat16 products (AVX512-BF16, AMX-BF16)
    onednn: bool = False  # torch was built with oneDNN for this kind of processor

    @property
    def fastest(self) -> torch.dtype:
        """int8 if a library multiplies it: faster than float32 even without VNNI (docs/performance.md)."""
        return torch.int8 if self.onednn else torch.float32


@cache
def cpu_features() -> CpuFeatures:
    """Of the CPU that we run on."""
    has = _instructions()
    return CpuFeatures(
        vnni=any(has.get(name) for name in ("avx512_vnni", "avx_vnni", "amx_int8")),
        bfloat16=any(has.get(name) for name in ("avx512_bf16", "amx_bf16")),
        onednn=torch._C._has_mkldnn and platform.machine().lower() in ("x86_64", "amd64"),
    )


def _instructions() -> Mapping[str, object]:
    """By torch's names; older versions tell of a few only."""
    if hasattr(torch.cpu, "get_capabilities"):
        found: Mapping[str, object] = torch.cpu.get_capabilities()
        return found
    asked = {"avx512_vnni": "_is_vnni_supported", "avx512_bf16": "_is_avx512_bf16_supported"}
    return {name: getattr(torch.cpu, question, bool)() for name, question in asked.items()}


def even_rows(x: Tensor) -> Tensor:
    """Many rows (..., M, K) filled up to a multiple of 16: oneDNN compiles and keeps code for each number it meets."""
    rows = x.shape[-2]
    return x if rows <= FEW_ROWS or rows % BLOCK == 0 else torch.nn.functional.pad(x, (0, 0, 0, -rows % BLOCK))
