"""The recurrence in C by whole numbers: bit for bit what its arithmetic says, near the plain one, rows alone."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from c_arithmetic import emulated_direction, whole_numbers
from hypothesis import given
from hypothesis import strategies as st
from lstm_problems import Problem
from torch import Tensor

from elmokit.kernels import LstmRules, LstmState, reference_lstm
from elmokit.kernels.cpu.c import CompiledLstm, c_library
from elmokit.kernels.cpu.int8 import dequantise
from elmokit.native import lstm

LIBRARY = c_library()
if LIBRARY is None:
    pytest.skip("nothing runs in C here: no library was built, no AVX2, or ELMOKIT_NATIVE=0", allow_module_level=True)
MOST = LIBRARY.elmokit_most()
# int16 is what bfloat16 goes as where there are no instructions for it; else "int16" here is bfloat16 itself.
KINDS = ("int8",) if LIBRARY.elmokit_halves() else ("int8", "int16")

UNCLIPPED = LstmRules(None, None, 0.5)
PROBLEMS = {
    "fills nothing evenly": Problem((5, 5, 3, 1), D=9, H=13, P=7),
    "cells a vector would overrun": Problem((7, 7, 2), D=3, H=17, P=9),
    "cells half a vector would overrun": Problem((4, 4), D=6, H=36, P=33),
    "fills all evenly": Problem((6, 6, 6), D=32, H=64, P=64),
    "more outputs than cells": Problem((3, 2), D=70, H=5, P=67),
    "one of each": Problem((2, 1), D=1, H=1, P=1),
    "no projection": Problem((4, 3, 3), D=5, H=11, P=None, keep=True),
    "no clips": Problem((3, 3, 2), D=9, H=13, P=7, rules=UNCLIPPED),
    "no clips, no projection": Problem((3, 3, 2), D=9, H=13, P=None, rules=UNCLIPPED),
    "clips of nearly all": Problem((6, 4), D=9, H=13, P=7, rules=LstmRules(0.05, 0.02, 1.0)),
    "rows that start anew and rows that never run": Problem((6, 5, 5, 2, 1), D=9, H=10, P=7, keep=True, idle=3),
    "backward alone": Problem((3, 3, 1), R=1, D=9, H=13, P=7),
    "a long sentence": Problem((1,) * 40, D=9, H=13, P=7),
    "one chunk": Problem((48, 48), D=9, H=12, P=7),
    "more than a chunk": Problem((49, 49, 20), D=9, H=12, P=7, keep=True),
    "more than two chunks": Problem((103, 97, 96), D=9, H=9, P=7, keep=True, idle=1),
    "more than two chunks of wide vectors": Problem((195, 193, 97), D=9, H=9, P=7, keep=True),
    "rows of several tiles": Problem((35, 33), D=140, H=70, P=70),
}


class Case:
    """A problem in float32, its matrices in whole numbers, and a layer made of them."""

    def __init__(self, problem: Problem, kind: str = "int8") -> None:
        self.problem, self.kind = problem, kind
        parts = [None if part is None else part.float() for part in problem.parts()]
        self.x, self.weights, self.state, self.steps, self.rules = problem.arguments(parts)
        kept = problem.kept()
        self.keep = None if kept is None else kept.float()  # (R, N)
        given = self.weights.x, self.weights.h, self.weights.projection
        self.matrices = [
            [None] * problem.R if part is None else [whole_numbers(side, kind) for side in part] for part in given
        ]
        rounded = [None if part is None else part.bfloat16() for part in given]
        w_x, w_h, w_p = self.matrices if kind == "int8" else rounded
        self.layer = CompiledLstm(LIBRARY, w_x, w_h, self.weights.bias, None if problem.P is None else w_p, self.rules)

    def run(self) -> tuple[Tensor, LstmState]:
        return self.layer(self.x, self.state, self.steps, keep=self.keep)

    def emulated(self) -> tuple[Tensor, LstmState]:
        made = [
            emulated_direction(
                self.x[r],
                tuple(part[r] for part in self.matrices),
                self.weights.bias[r],
                LstmState(self.state.h[r], self.state.c[r]),
                self.steps,
                self.rules,
                keep=None if self.keep is None else self.keep[r],
                most=MOST,
            )
            for r in range(self.problem.R)
        ]
        states = zip(*(state for _, state in made), strict=True)
        return torch.stack([out for out, _ in made]), LstmState(*map(torch.stack, states))


Rounding = Callable[[Tensor], Tensor]


def rounded_run(
    case: Case,
    weights: Sequence[Tensor | None],
    rows_as: Callable[[Tensor], Tensor],
    cells_as: Callable[[Tensor], Tensor],
) -> tuple[Tensor, LstmState]:
    """The plain recurrence with rows rounded on their way into each product."""
    (w_x, w_h, w_p), rules = weights, case.rules
    h, c, outs, at = case.state.h.clone(), case.state.c.clone(), [], 0
    for rows in case.steps:
        some = slice(at, at + rows)
        kept = 1 if case.keep is None else case.keep[:, some, None]
        gates = case.weights.bias[:, None] + rows_as(case.x[:, some]) @ w_x.mT + rows_as(h[:, :rows] * kept) @ w_h.mT
        i, j, f, o = gates.chunk(4, dim=2)
        cell = torch.sigmoid(f + rules.forget_bias) * (c[:, :rows] * kept) + torch.sigmoid(i) * torch.tanh(j)
        c[:, :rows] = cell = cell if rules.cell_clip is None else cell.clamp(-rules.cell_clip, rules.cell_clip)
        out = torch.sigmoid(o) * torch.tanh(cell)
        if w_p is not None:
            out = cells_as(out) @ w_p.mT
            out = out if rules.proj_clip is None else out.clamp(-rules.proj_clip, rules.proj_clip)
        h[:, :rows] = out
        outs.append(out)
        at += rows
    return torch.cat(outs, dim=1), LstmState(h, c)


def in_steps(x: Tensor) -> Tensor:
    """Rows in whole steps of their largest number."""
    unit = x.abs().amax(dim=2, keepdim=True).clamp_min(1e-30) / (MOST // 2)
    return (x / unit).round() * unit


def halved(x: Tensor) -> Tensor:
    return x.bfloat16().float()


def assert_same(found: tuple[Tensor, LstmState], exact: tuple[Tensor, LstmState]) -> None:
    for name, a, b in zip(("out", "h", "c"), (found[0], *found[1]), (exact[0], *exact[1]), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_equals_its_arithmetic(name: str, kind: str) -> None:
    case = Case(PROBLEMS[name], kind)
    before = case.state.h.clone(), case.state.c.clone()
    found = case.run()
    assert_same(found, case.emulated())
    assert_same((case.x, case.state), (case.x, LstmState(*before)))  # what was given stays as it was
    idle = PROBLEMS[name].idle
    if idle:
        assert torch.equal(found[1].c[:, -idle:], before[1][:, -idle:])


@pytest.mark.parametrize("name", PROBLEMS)
def test_is_as_near_the_plain_recurrence_as_torch_is(name: str) -> None:
    """These weights are so large that some problems run wild; rounding in torch shows by how much."""
    problem = PROBLEMS[name]
    case = Case(problem)
    parts = [None if part[0] is None else torch.stack([dequantise(*one) for one in part]) for part in case.matrices]
    exact, last = reference_lstm(*problem.arguments(problem.parts()), keep=problem.kept())
    (out, ended), (near, nearby) = case.run(), rounded_run(case, parts, in_steps, lambda cells: cells)
    for found, other, plain in ((out, near, exact), (ended.h, nearby.h, last.h), (ended.c, nearby.c, last.c)):
        assert found.dtype == torch.float32
        error, usual = (float((made.double() - plain).norm() / plain.norm()) for made in (found, other))
        assert error < 0.01 + 1.5 * usual
        assert usual < 0.2


@pytest.mark.parametrize("name", PROBLEMS)
def test_sixteen_bits_are_as_near_as_bfloat16_is(name: str) -> None:
    """With activations rounded like the weights, and nothing else."""
    problem = PROBLEMS[name]
    case = Case(problem, "int16")
    w_x, w_h, _, w_p = (None if part is None else part.bfloat16().float() for part in case.weights)
    exact, last = reference_lstm(*problem.arguments(problem.parts()), keep=problem.kept())
    (out, ended), (near, nearby) = case.run(), rounded_run(case, (w_x, w_h, w_p), halved, halved)
    for found, other, plain in ((out, near, exact), (ended.h, nearby.h, last.h), (ended.c, nearby.c, last.c)):
        error, usual = (float((made.double() - plain).norm() / plain.norm()) for made in (found, other))
        assert error < 0.001 + 1.5 * usual
        assert usual < 0.05


def test_the_clips_are_hit() -> None:
    out, last = Case(PROBLEMS["clips of nearly all"]).run()
    assert float((out.abs() == torch.tensor(0.02)).float().mean()) > 0.5
    assert float((last.c.abs() == torch.tensor(0.05)).float().mean()) > 0.5
    assert float(Case(PROBLEMS["no clips"]).run()[0].abs().max()) > 1


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.integers(1, 40),
    st.integers(1, 40),
    st.none() | st.integers(1, 40),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from(KINDS),
)
def test_any_size_equals_its_arithmetic(
    rows: list[int], D: int, H: int, P: int | None, idle: int, keep: bool, kind: str
) -> None:
    case = Case(Problem(tuple(sorted(rows, reverse=True)), D=D, H=H, P=P, idle=idle, keep=keep), kind)
    assert_same(case.run(), case.emulated())


@pytest.mark.parametrize("stretch", [1, 7, 60, 500])
@pytest.mark.parametrize("name", ["more than a chunk", "rows that start anew and rows that never run"])
def test_stretches_change_nothing(name: str, stretch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(PROBLEMS[name])
    whole = case.run()
    monkeypatch.setattr(lstm, "STRETCH_BYTES", stretch * 16 * case.problem.H)
    assert_same(case.run(), whole)


@pytest.mark.parametrize("number", [2, 3, 5])
@pytest.mark.parametrize("name", ["more than two chunks", "no projection"])
def test_threads_change_nothing(name: str, number: int, threads: None) -> None:
    """Where rows start anew, too, and some never run."""
    case = Case(PROBLEMS[name])
    torch.set_num_threads(number)
    assert_same(case.run(), case.emulated())


@pytest.mark.parametrize("kind", KINDS)
def test_words_met_again_give_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a step, in later steps, and so often that eight stretches' rows are not enough."""
    case = Case(Problem((9,) * 20, D=9, H=13, P=7), kind)
    case.x = case.x[:, torch.arange(180) % 3].contiguous()
    case.x[:, 100] = -case.x[:, 100]
    case.x[:, 101] = case.x[:, 101] * 2  # the same bytes, and another size
    expected = case.emulated()
    assert_same(case.run(), expected)
    monkeypatch.setattr(lstm, "STRETCH_BYTES", 10 * 16 * 13)
    assert_same(case.run(), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_and_tiny_and_huge_numbers(kind: str) -> None:
    case = Case(Problem((6, 6), D=9, H=13, P=7), kind)
    for row, size in enumerate((0.0, 1e-45, 1e-35, 1e-20, 1e20, 3e38)):
        case.x[:, row] = torch.linspace(-1, 1, 9) * size
    case.state.h[:, 2] = 0
    case.state.h[:, 3] = -0.0
    found = case.run()
    assert_same(found, case.emulated())
    assert bool(found[0].isfinite().all())


def test_nothing_to_do() -> None:
    case = Case(Problem((3,), D=9, H=13, P=7))
    for B in (0, 3):
        state = LstmState(case.state.h[:, :B], case.state.c[:, :B])
        out, last = case.layer(case.x[:, :0], state, ())
        assert out.shape == (2, 0, 7)
        assert torch.equal(last.h, state.h)
        assert torch.equal(last.c, state.c)


def test_other_layouts_and_types_are_taken() -> None:
    case = Case(PROBLEMS["rows that start anew and rows that never run"])
    expected = case.run()
    case.x = case.x.transpose(0, 1).contiguous().transpose(0, 1)
    case.state = LstmState(*(part.transpose(1, 2).contiguous().transpose(1, 2) for part in case.state))
    assert case.keep is not None
    case.keep = case.keep.bool()
    assert_same(case.run(), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_default_type_of_new_tensors_is_not_ours(dtype: torch.dtype) -> None:
    """A buffer of it would be too small, or read wrongly."""
    case = Case(PROBLEMS["more than a chunk"])
    expected = case.run()
    try:
        torch.set_default_dtype(dtype)
        found = case.run()
    finally:
        torch.set_default_dtype(torch.float32)
    assert_same(found, expected)


class TestWhatDoesNotFit:
    @pytest.fixture
    def case(self) -> Case:
        return Case(Problem((3, 2), D=9, H=13, P=7, keep=True))

    def test_is_told(self, case: Case) -> None:
        with pytest.raises(ValueError, match=r"x, h, c and keep are \[\(2, 4, 9\), .*expected \[\(2, 5, 9\)"):
            case.layer(case.x[:, :4], case.state, case.steps, keep=case.keep)

    def test_is_not_run(self, case: Case) -> None:
        h, c = case.state
        for x, state, steps, keep in (
            (case.x[:, :, :8], case.state, (3, 2), case.keep),
            (case.x[:1], case.state, (3, 2), case.keep),
            (case.x, LstmState(h[:, :2], c), (3, 2), case.keep),
            (case.x, LstmState(h, c[:, :2]), (3, 2), case.keep),
            (case.x, LstmState(h[..., :6], c), (3, 2), case.keep),
            (case.x, LstmState(h, c[..., :12]), (3, 2), case.keep),
            (case.x, LstmState(h[:, :2], c[:, :2]), (3, 2), case.keep),
            (case.x, case.state, (2, 3), case.keep),
            (case.x, case.state, (3, 3, -1), case.keep),
            (case.x, case.state, (3, 2), case.keep[:, :4]),
        ):
            with pytest.raises(ValueError, match="expected"):
                case.layer(x, state, steps, keep=keep)


class TestRowsAreAlone:
    """Bit for bit: alone, among others, wherever in the batch, by however many threads."""

    LENGTHS = (23, 11, 11, 9, 7, 7, 5, 4, 4, 4, 3, 3, 2, 2, 2, 1, 1, 1, 1, 1, *([1] * 35))  # 55 rows

    @pytest.fixture(params=[(7, "int8"), (None, "int8"), (7, "int16"), (None, "int16")])
    def case(self, request: pytest.FixtureRequest) -> Case:
        P, kind = request.param
        return Case(Problem(self.steps(self.LENGTHS), D=9, H=13, P=P), kind)

    @staticmethod
    def steps(lengths: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sum(length > t for length in lengths) for t in range(max(lengths)))

    def rows(self, packed: Tensor, lengths: tuple[int, ...]) -> list[Tensor]:
        """Each row's positions (R, length, D)."""
        starts = torch.tensor([0, *self.steps(lengths)]).cumsum(0)
        return [packed[:, starts[:length] + row] for row, length in enumerate(lengths)]

    def together(self, case: Case, chosen: list[int]) -> list[Tensor]:
        """The outputs of some rows, run in one batch in that order."""
        lengths = tuple(self.LENGTHS[row] for row in chosen)
        sentences, steps = self.rows(case.x, self.LENGTHS), self.steps(lengths)
        x = torch.cat([torch.stack([sentences[row][:, t] for row in chosen[:n]], 1) for t, n in enumerate(steps)], 1)
        out, _ = case.layer(x, LstmState(case.state.h[:, chosen], case.state.c[:, chosen]), steps)
        return self.rows(out, lengths)

    @pytest.mark.parametrize("number", [1, 2, 3, 5])
    def test_by_any_number_of_threads(self, case: Case, number: int, threads: None) -> None:
        torch.set_num_threads(1)
        expected = case.run()
        torch.set_num_threads(number)
        assert_same(case.run(), expected)

    @pytest.mark.parametrize("number", [1, 3])
    def test_alone_and_among_any_others(self, case: Case, number: int, threads: None) -> None:
        torch.set_num_threads(number)
        whole = self.rows(case.run()[0], self.LENGTHS)
        for row in (0, 1, 2, 5, 12, 40, 54):
            assert torch.equal(self.together(case, [row])[0], whole[row])
        for chosen in ([0, 3, 6], [1, 2], [2, 1], [1, 1, 2, 2, 2, 2], [4, 5, 54, 20], [5, 4, 30, 31, 54, 40]):
            for row, got in zip(chosen, self.together(case, chosen), strict=True):
                assert torch.equal(got, whole[row]), f"row {row} among {chosen}"

    def test_a_state_of_zeros_among_others(self, case: Case) -> None:
        """The first product is left out where all rows are zero, and only there."""
        case = Case(case.problem, case.kind)
        for part in case.state:
            part[:, 1] = 0
        among = self.together(case, [0, 1, 2])[1]
        assert torch.equal(among, self.together(case, [1])[0])

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
    def test_a_spoilt_row_spoils_no_other(self, case: Case, bad: float) -> None:
        expected = self.rows(case.run()[0], self.LENGTHS)
        spoilt = Case(case.problem, case.kind)
        for row in (1, 20):
            spoilt.x[:, row] = bad  # the first step's
        spoilt.x[:, 2, 3] = bad
        spoilt.state.h[:, 5] = bad
        spoilt.state.c[:, 7] = bad
        found = self.rows(spoilt.run()[0], self.LENGTHS)
        for row, (got, exact) in enumerate(zip(found, expected, strict=True)):
            if row not in (1, 2, 5, 7, 20):
                assert torch.equal(got, exact), f"row {row}"

    def test_called_from_many_python_threads(self, case: Case, threads: None) -> None:
        torch.set_num_threads(2)
        expected = case.run()
        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(lambda _: case.run(), range(12)):
                assert_same(found, expected)
