"""The recurrence and the token encoder in C with float32: near the plain ones, and no row minds another."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lstm_problems import Problem
from torch import Tensor

from elmokit.kernels import Filter, LstmState, LstmWeights, reference_lstm
from elmokit.kernels.cpu.c import CompiledLstm, CompiledTokens, Linear, c_library
from elmokit.kernels.cpu.inference import inference_tokens
from elmokit.kernels.cpu.int8 import held as as_held
from elmokit.nn.char_cnn import TokenEncoder, TokenEncoderConfig

LIBRARY = c_library()
if LIBRARY is None:
    pytest.skip("nothing runs in C here: no library was built, no AVX2, or ELMOKIT_NATIVE=0", allow_module_level=True)

PROBLEMS = {
    "fills nothing evenly": Problem((5, 5, 3, 1), D=9, H=13, P=7),
    "fills all evenly": Problem((6, 6, 6), D=32, H=64, P=64),
    "more outputs than cells": Problem((3, 2), D=70, H=5, P=67),
    "one of each": Problem((2, 1), D=1, H=1, P=1),
    "no projection": Problem((4, 3, 3), D=5, H=11, P=None, keep=True),
    "rows that start anew and rows that never run": Problem((6, 5, 5, 2, 1), D=9, H=10, P=7, keep=True, idle=3),
    "backward alone": Problem((3, 3, 1), R=1, D=9, H=13, P=7),
    "more than a chunk": Problem((49, 49, 20), D=9, H=12, P=7, keep=True),
    "rows of several slices": Problem((5, 3), D=1030, H=2060, P=8),
}


class Case:
    """A problem in float32 and a layer made of it."""

    def __init__(self, problem: Problem) -> None:
        parts = [None if part is None else part.float() for part in problem.parts()]
        if problem.H > 1000:  # sums of so many are to stay what a network has
            parts = [
                None if part is None else part * (0.1 if part.ndim == 3 and k in (1, 2, 4) else 1)
                for k, part in enumerate(parts)
            ]
        self.x, self.weights, self.state, self.steps, self.rules = problem.arguments(parts)
        kept = problem.kept()
        self.keep = None if kept is None else kept.float()  # (R, N)
        self.layer = CompiledLstm(LIBRARY, *self.weights, self.rules)

    def expected(self) -> tuple[Tensor, LstmState]:
        double = LstmWeights(*(None if part is None else part.double() for part in self.weights))
        state = LstmState(self.state.h.double(), self.state.c.double())
        keep = None if self.keep is None else self.keep.double()
        return reference_lstm(self.x.double(), double, state, self.steps, self.rules, keep=keep)


@pytest.mark.parametrize("name", PROBLEMS)
def test_equals_the_plain_recurrence(name: str) -> None:
    case = Case(PROBLEMS[name])
    out, last = case.layer(case.x, case.state, case.steps, keep=case.keep)
    expected, ended = case.expected()
    for found, exact in ((out, expected), (last.h, ended.h), (last.c, ended.c)):
        torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-5)


@given(
    rows=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    D=st.integers(1, 40),
    H=st.integers(1, 40),
    P=st.none() | st.integers(1, 40),
)
def test_any_size(rows: list[int], D: int, H: int, P: int | None) -> None:
    case = Case(Problem(tuple(sorted(rows, reverse=True)), D=D, H=H, P=P))
    out, _ = case.layer(case.x, case.state, case.steps)
    torch.testing.assert_close(out.double(), case.expected()[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("number", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["fills nothing evenly", "more than a chunk", "rows of several slices"])
def test_a_row_is_the_same_alone_and_among_others(name: str, number: int, threads: None) -> None:
    """Bit for bit, whatever number of threads shares the rows."""
    case = Case(PROBLEMS[name])
    torch.set_num_threads(number)
    out, last = case.layer(case.x, case.state, case.steps, keep=case.keep)
    starts = [sum(case.steps[:t]) for t in range(len(case.steps))]
    for row in range(0, case.steps[0], 7):
        places = [start + row for start, rows in zip(starts, case.steps, strict=True) if rows > row]
        state = LstmState(case.state.h[:, row : row + 1], case.state.c[:, row : row + 1])
        keep = None if case.keep is None else case.keep[:, places]
        alone, ended = case.layer(case.x[:, places], state, (1,) * len(places), keep=keep)
        assert torch.equal(alone, out[:, places])
        assert torch.equal(ended.c[:, 0], last.c[:, row])


if LIBRARY.elmokit_halves():

    @pytest.mark.parametrize("rows", [1, 2, 16, 17, 40])
    def test_bfloat16_sums_that_no_rounding_touches_are_those_of_floats(rows: int) -> None:
        """Small whole numbers: bit for bit, in whatever order they are added up."""
        source = torch.Generator().manual_seed(rows)

        def whole(*shape: int) -> Tensor:
            return torch.randint(-4, 5, shape, generator=source).float()

        D, H = 100, 21
        w_x, w_h, bias = whole(2, 4 * H, D) / 64, whole(2, 4 * H, H) / 64, whole(2, 4 * H)
        x, state = whole(2, rows, D), LstmState(whole(2, rows, H), whole(2, rows, H))
        floats, halves = (
            CompiledLstm(LIBRARY, w_x.to(dtype), w_h.to(dtype), bias, None, Problem((1,)).rules)
            for dtype in (torch.float32, torch.bfloat16)
        )
        kinds = [layer.directions[0].matrices[0].structure.kind for layer in (floats, halves)]
        assert kinds == [1, 3]
        assert torch.equal(floats(x, state, (rows,))[0], halves(x, state, (rows,))[0])


def test_matrices_are_read_where_they_lie() -> None:
    """A copy is made only where rows are no whole vectors."""
    weights = [torch.randn(2, 64, 32), torch.randn(2, 64, 16), torch.randn(2, 16, 16)]
    layer = CompiledLstm(LIBRARY, weights[0], weights[1], torch.zeros(2, 64), weights[2], Problem((1,)).rules)
    for r, direction in enumerate(layer.directions):
        held = [matrix.structure.values for matrix in direction.matrices]
        assert held == [weight[r].data_ptr() for weight in weights]


@pytest.mark.parametrize(("n_highway", "project", "pad"), [(0, True, 261), (1, True, None), (2, False, 261)])
@torch.no_grad()
def test_tokens_equal_the_network(n_highway: int, project: bool, pad: int | None) -> None:
    filters = ((1, 5), (2, 33), (7, 64))
    config = TokenEncoderConfig(
        filters=filters, n_highway=n_highway, project=project, projection_dim=19 if project else 102, pad_id=pad
    )
    torch.manual_seed(0)
    encoder = TokenEncoder(config)
    linears = [linear for highway in encoder.highways for linear in (highway.transform, highway.gate)]
    made = [Linear(linear.weight.detach(), linear.bias.detach()) for linear in linears]
    last = encoder.projection
    native = CompiledTokens(
        LIBRARY,
        encoder.characters.weight,
        [Filter(conv.weight, conv.bias) for conv in encoder.convolutions],
        list(zip(made[::2], made[1::2], strict=True)),
        None if last is None else Linear(last.weight.detach(), last.bias.detach()),
        pad=pad,
    )
    words = torch.randint(0, 262, (60, 50))
    for k, word in enumerate(words):
        word[k % 51 :] = 261
    found = native(words)
    torch.testing.assert_close(found, encoder(words), rtol=0, atol=2e-6)
    assert torch.equal(torch.cat([native(word[None]) for word in words[::9]]), found[::9])


@torch.no_grad()
def test_in_int8_the_token_projection_is_multiplied_as_floats() -> None:
    """With the weights that int8 holds: a copy stored as int8 gives the same vectors as one rounded on loading."""
    torch.manual_seed(0)
    encoder = TokenEncoder(TokenEncoderConfig(filters=((1, 16), (3, 48)), n_highway=1, projection_dim=32))
    highway, last = encoder.highways[0], encoder.projection
    linears = [(linear.weight.detach(), linear.bias.detach()) for linear in (highway.transform, highway.gate, last)]
    filters = [Filter(conv.weight, conv.bias) for conv in encoder.convolutions]
    words = torch.randint(0, 262, (9, 50))
    made = []
    for held in (linears, [(as_held(weight, torch.int8), bias) for weight, bias in linears]):
        tokens = inference_tokens(
            encoder.characters.weight, filters, [(held[0], held[1])], held[2], pad=261, mode=torch.int8
        )
        kinds = [part.matrix.structure.kind for part in (*tokens.highways[0], tokens.projection)]
        assert kinds == [0, 0, 1]
        made.append(tokens(words))
    assert torch.equal(*made)
    assert torch.nn.functional.cosine_similarity(made[0], encoder(words)).min() > 0.9995
