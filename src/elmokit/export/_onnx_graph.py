"""An ONNX graph as it grows: nodes and constants, each value known by its name."""

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import MissingExtraError

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    raise MissingExtraError("writing ONNX files", extra="onnx") from error

OPSET, IR = 18, 9  # onnxruntime reads them from 1.15 on
Array = NDArray[Any]
Shape = Sequence[str | int]  # a name is a size that may differ from run to run

ELEMENTS = {
    "float": TensorProto.FLOAT,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}


class OnnxGraph:
    """Operators are called with the names of their inputs and give the name of their output."""

    def __init__(self, *, numbers: "count[int] | None" = None) -> None:
        self.numbers = count() if numbers is None else numbers  # shared with bodies: names are unique in the whole file
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def name(self, of: str) -> str:
        return f"{of}_{next(self.numbers)}"

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.ops(kind, *inputs, outputs=1, **attributes)[0]

    def ops(self, kind: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """The same for an operator with several outputs."""
        names = [self.name(kind) for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names

    def constant(self, array: Any, *, of: str = "constant") -> str:
        values = np.ascontiguousarray(array)
        name = self.name(of)
        self.constants.append(numpy_helper.from_array(values.reshape(np.shape(array)), name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, dtype=np.int64))

    def scan(
        self, step: "Callable[[OnnxGraph, list[str], str], tuple[list[str], str]]", states: Sequence[str], along: str
    ) -> str:
        """`step` over the first axis of `along`: (body, states, slice) to (next states, what is kept of this step).

        Gives what was kept, one slice per step. The body sees the values of this graph by their names.
        """
        body = OnnxGraph(numbers=self.numbers)
        before = [body.name("state") for _ in states]
        piece = body.name("slice")
        after, kept = step(body, before, piece)
        ends = [body.op("Identity", name) for name in (*after, kept)]  # a value may leave a body only once
        untyped = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
        inputs = [helper.make_value_info(name, untyped) for name in (*before, piece)]
        outputs = [helper.make_value_info(name, untyped) for name in ends]
        inner = helper.make_graph(body.nodes, self.name("step"), inputs, outputs, body.constants)
        return self.ops("Scan", *states, along, outputs=len(ends), body=inner, num_scan_inputs=1)[-1]

    def model(
        self, inputs: dict[str, tuple[str, Shape]], outputs: dict[str, tuple[str, Shape]], *, about: str
    ) -> "onnx.ModelProto":
        """The whole file; inputs and outputs by name, each an element type and a shape."""
        begin, end = (
            [helper.make_tensor_value_info(name, ELEMENTS[kind], shape) for name, (kind, shape) in side.items()]
            for side in (inputs, outputs)
        )
        made = helper.make_graph(self.nodes, "elmokit", begin, end, self.constants, doc_string=about)
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(made, opset_imports=[opset], ir_version=IR, producer_name="elmokit")

    def output(self, name: str, value: str) -> None:
        """Let a value leave under this name."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))


def write_model(model: "onnx.ModelProto", path: Path) -> None:
    """Types and shapes are checked first, those inside of bodies too."""
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
