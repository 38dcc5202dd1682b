"""What a CPU can do, asked of newer and of older versions of torch."""

from types import SimpleNamespace

import torch

from elmokit.kernels.cpu.features import cpu_features


def test_older_torch_tells_of_a_few_instructions(monkeypatch):
    older = SimpleNamespace(_is_vnni_supported=lambda: True, _is_avx512_bf16_supported=lambda: False)
    monkeypatch.setattr(torch, "cpu", older)
    found = cpu_features.__wrapped__()
    assert (found.vnni, found.bfloat16) == (True, False)
    monkeypatch.setattr(torch, "cpu", SimpleNamespace())
    assert not cpu_features.__wrapped__().vnni


def test_newer_torch_tells_all(monkeypatch):
    monkeypatch.setattr(torch, "cpu", SimpleNamespace(get_capabilities=lambda: {"amx_int8": True, "amx_bf16": True}))
    found = cpu_features.__wrapped__()
    assert (found.vnni, found.bfloat16) == (True, True)
