"""The C for ARM, cross-compiled and run by an emulator: whole numbers bit for bit as on x86, floats near torch's.

    apt-get install gcc-aarch64-linux-gnu qemu-user && pytest -m slow tests/kernels/test_c_arm.py

An emulator says nothing about speed.
"""

import ctypes
import shlex
import shutil
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from c_arithmetic import emulated_direction, emulated_tokens, whole_numbers
from lstm_problems import Problem

from elmokit.kernels import Filter, LstmRules, LstmState, reference_lstm
from elmokit.kernels.cpu.c import Linear, as_arrays
from elmokit.native import build
from elmokit.native.library import CLibrary
from elmokit.native.lstm import CLstm
from elmokit.native.matrices import PackedMatrix
from elmokit.native.tokens import ArrayFilter, ArrayLinear, CTokens

CC, EMULATOR = "aarch64-linux-gnu-gcc", shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which(CC) is None or EMULATOR is None, reason=f"needs {CC} and qemu-aarch64"),
]
MOST = {"neon": 127, "dotprod": 127, "i8mm": 255}
PROBLEMS = {
    "fills nothing evenly": Problem((5, 5, 3, 1), D=9, H=13, P=7),
    "fills all evenly": Problem((6, 6, 6), D=32, H=64, P=64),
    "one of each": Problem((2, 1), D=1, H=1, P=1),
    "no projection": Problem((4, 3, 3), D=5, H=11, P=None, keep=True),
    "clips of nearly all": Problem((6, 4), D=9, H=13, P=7, rules=LstmRules(0.05, 0.02, 1.0)),
    "rows that start anew and rows that never run": Problem((6, 5, 5, 2, 1), D=9, H=10, P=7, keep=True, idle=3),
    "more than a chunk": Problem((49, 49, 20), D=9, H=12, P=7, keep=True),
}


class Arm:
    """One variant as a program that runs one call."""

    def __init__(self, variant: str, folder: Path) -> None:
        self.variant, self.folder, self.program = variant, folder, folder / variant
        flags = [*build.FLAGS, *shlex.split(build.VARIANTS["aarch64"][variant]), f"-DVARIANT={variant}", "-static"]
        source = Path(__file__).with_name("arm_driver.c")
        command = [CC, *flags, "-w", "-I", str(build.HERE), "-o", str(self.program), str(source)]
        subprocess.run(command, check=True)
        lanes, most = map(int, self._run().split())
        assert (lanes, most) == (4, MOST[variant])
        never: Any = None
        told = (lambda: lanes), (lambda: most), (lambda: 0)
        self.library = CLibrary(variant, *told, never, never, never, never, table, never, never)

    def call(self, parts: Sequence[bytes]) -> np.ndarray[Any, np.dtype[np.float32]]:
        (self.folder / "in").write_bytes(b"".join(parts))
        self._run(str(self.folder / "in"), str(self.folder / "out"))
        return np.fromfile(self.folder / "out", np.float32)

    def _run(self, *arguments: str) -> str:
        assert EMULATOR is not None
        command = [EMULATOR, "-cpu", "max", str(self.program), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout


def table(A: int, E: int, n: int, width: int, *places: int) -> int:
    """What loading computes with the C of the machine that it runs on; here that is another one."""
    pieces = -(-n // 16)
    shapes = (A, E), (n, E, width), (pieces, A, width, 16)
    characters, filters, made = (
        np.ctypeslib.as_array(ctypes.cast(place, ctypes.POINTER(ctypes.c_float)), shape)
        for place, shape in zip(places, shapes, strict=True)
    )
    given = np.zeros((A, width, 16 * pieces))
    given[..., :n] = np.einsum("ae,new->awn", characters.astype(np.float64), filters.astype(np.float64))
    made[:] = given.reshape(A, width, pieces, 16).transpose(2, 0, 1, 3)
    return 0


def number(*values: int) -> bytes:
    return np.array(values, np.int32).tobytes()


def array(values: Any) -> bytes:
    if values is None:
        return number(-1)
    data = np.ascontiguousarray(values).tobytes()
    return number(len(data)) + data


def matrix(packed: PackedMatrix | None) -> bytes:
    if packed is None:
        return number(0)
    s, held = packed.structure, list(packed.held)
    arrays = [held.pop(0) if at else None for at in (s.values, s.start, s.scale, s.zeros)]
    return number(1, s.kind, s.inputs, s.blocks, s.steps, s.shift, s.outputs, s.gates) + b"".join(map(array, arrays))


def run_lstm(arm: Arm, layer: CLstm, x: Any, h: Any, c: Any, steps: tuple[int, ...], keep: Any) -> list[Any]:
    """What `CLstm` does, all rows in one call: outputs and last state of each direction."""
    found = []
    for r, direction in enumerate(layer.directions):
        s = direction.structure
        parts = [number(0), *map(matrix, [*direction.matrices, None][:3]), array(direction.bias)]
        parts += [number(s.inputs, s.cells, s.outputs), array(np.array([s.cell_clip, s.output_clip], np.float32))]
        parts += [number(len(steps), x.shape[1], h.shape[1], steps[0], 7), array(np.array(steps, np.int32))]
        parts += [array(part) for part in (x[r], None if keep is None else keep[r], h[r], c[r])]
        whole = arm.call(parts)
        cuts = np.cumsum([x.shape[1] * s.outputs, h.shape[1] * s.outputs])
        out, last, cells = np.split(whole, cuts)
        found.append((out.reshape(-1, s.outputs), last.reshape(h[r].shape), cells.reshape(c[r].shape)))
    return found


@pytest.fixture(scope="module", params=MOST)
def arm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Arm:
    return Arm(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("kind", ["int8", "int16", "float32"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_recurrence(name: str, kind: str, arm: Arm) -> None:
    problem = PROBLEMS[name]
    parts = [None if part is None else part.float() for part in problem.parts()]
    x, weights, state, steps, rules = problem.arguments(parts)
    kept = problem.kept()
    keep = None if kept is None else kept.float()
    given = [weights.x, weights.h, weights.projection]
    if kind == "float32":
        sides = [None if stack is None else [as_arrays(one) for one in stack] for stack in given]
    elif kind == "int16":
        sides = [None if stack is None else [as_arrays(one.bfloat16()) for one in stack] for stack in given]
    else:
        sides = [None if stack is None else [as_arrays(whole_numbers(one, kind)) for one in stack] for stack in given]
    layer = CLstm(arm.library, sides[0], sides[1], weights.bias.numpy(), sides[2], rules)
    arrays = [x.numpy(), state.h.numpy(), state.c.numpy()]
    found = run_lstm(arm, layer, *arrays, steps, None if keep is None else keep.numpy())
    if kind == "float32":
        out, last = reference_lstm(x, weights, state, steps, rules, keep=keep)
        for r, (made, h, c) in enumerate(found):
            for got, expected in ((made, out[r]), (h, last.h[r]), (c, last.c[r])):
                assert np.allclose(got, expected.numpy(), atol=2e-5, rtol=1e-5)
        return
    for r, (made, h, c) in enumerate(found):
        matrices = tuple(None if stack is None else whole_numbers(stack[r], kind) for stack in given)
        expected, last = emulated_direction(
            x[r],
            matrices,
            weights.bias[r],
            LstmState(state.h[r], state.c[r]),
            steps,
            rules,
            keep=None if keep is None else keep[r],
            most=MOST[arm.variant],
        )
        assert np.array_equal(made, expected.numpy())
        assert np.array_equal(h, last.h.numpy())
        assert np.array_equal(c, last.c.numpy())


@pytest.mark.parametrize(("activation", "word_dim"), [("relu", 0), ("tanh", 0), ("relu", 9)])
@pytest.mark.parametrize("kind", ["int8", "int16"])
def test_token_encoder(kind: str, activation: Literal["relu", "tanh"], word_dim: int, arm: Arm) -> None:
    source = torch.Generator().manual_seed(3)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=source)

    characters, F, P, C = drawn(20, 5), 13, 7, 11
    filters = [Filter(drawn(6, 5, 1), drawn(6)), Filter(drawn(7, 5, 3), drawn(7))]
    pairs = [(drawn(F, F) * 0.3, drawn(F)) for _ in range(2)]
    last = drawn(P, F + word_dim), drawn(P)
    own = drawn(60, word_dim) if word_dim else None
    words = torch.randint(0, 19, (60, C), generator=source)
    words[:, 6:] = 19  # what fills words up

    def linear(pair: tuple[torch.Tensor, torch.Tensor]) -> Linear:
        return Linear(whole_numbers(pair[0], kind), pair[1])

    def held(pair: tuple[torch.Tensor, torch.Tensor]) -> ArrayLinear:
        weights = pair[0].bfloat16() if kind == "int16" else whole_numbers(pair[0], kind)
        return ArrayLinear(as_arrays(weights), pair[1].numpy())

    encoder = CTokens(
        arm.library,
        characters.numpy(),
        [ArrayFilter(*(part.numpy() for part in bank)) for bank in filters],
        [(held(pairs[0]), held(pairs[1]))],
        held(last),
        pad=19,
        activation=activation,
        word_dim=word_dim,
    )
    s = encoder.structure
    parts = [number(1, s.characters, s.pad, s.filters, s.outputs, s.n_banks, s.n_highways, s.bends, s.word_dim)]
    for bank in encoder.banks:
        shape = bank.structure
        parts += [number(shape.width, shape.filters, shape.pieces), array(bank.table), array(bank.bias)]
    for transform, gate in encoder.highways:
        parts += [matrix(transform.matrix), matrix(gate.matrix), array(transform.bias), array(gate.bias)]
    assert encoder.projection is not None
    parts += [matrix(encoder.projection.matrix), array(encoder.projection.bias)]
    parts += [number(*words.shape), array(words.numpy().astype(np.int32)), array(None if own is None else own.numpy())]
    found = arm.call(parts).reshape(len(words), P)
    parts_of_it = characters, filters, [(linear(pairs[0]), linear(pairs[1]))], linear(last)
    settings: dict[str, Any] = {"pad": 19, "most": MOST[arm.variant], "activation": activation, "words": own}
    expected = emulated_tokens(words, *parts_of_it, **settings)
    assert np.array_equal(found, expected.numpy())


def test_the_library_is_built_for_arm_with_all_variants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", CC)
    assert build.build(tmp_path / "made.so") == list(build.VARIANTS["aarch64"])


@pytest.mark.parametrize("size", [7, 16, 1_003])
def test_checksum(size: int, arm: Arm) -> None:
    data = np.random.default_rng(size).bytes(size)
    found, added = arm.call([number(2, size, 77), data]).view(np.uint32).tolist()
    assert added == (0 if arm.variant == "neon" else size - size % 16)  # plain ARMv8 has no instruction for it
    assert zlib.crc32(data[added:], found) == zlib.crc32(data, 77)
