"""A model as a file that runs elsewhere: ONNX, which needs no torch, and torch's own exported programs."""

from typing import TYPE_CHECKING

from elmokit._lazy import lazy

if TYPE_CHECKING:  # running an exported model loads no torch
    from elmokit.export.save import ExportReport, export_onnx, export_torch

__all__ = ["ExportReport", "export_onnx", "export_torch"]

__getattr__, __dir__ = lazy(__name__, {"save": "ExportReport export_onnx export_torch"})
