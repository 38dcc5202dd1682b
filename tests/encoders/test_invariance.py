"""Padding, batching, order and caching never change a vector."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import models
from elmokit.encoders import Elmo
from elmokit.encoders.batches import positions
from elmokit.encoders.elmo.runner import Runner, WordCache
from elmokit.errors import ElmokitError
from elmokit.text import Sentence

MODEL = models.tiny()
ELMO = Elmo(MODEL.pretrained, device="cpu", cache_words=8)

tokens = st.text(max_size=6) | st.sampled_from(["the", "cat", "<S>", "</S>", "", "a" * 70, "猫", "\ud800"])
sentences = st.lists(st.lists(tokens, max_size=7), max_size=9)


@given(sentences, st.integers(1, 60), st.randoms())
def test_batches_and_order_change_nothing(given_sentences: list[list[str]], batch_tokens: int, random: object) -> None:
    alone = [Elmo(MODEL.pretrained, device="cpu").encode_layers([s])[0] for s in given_sentences]
    order = list(range(len(given_sentences)))
    random.shuffle(order)  # type: ignore[attr-defined]
    shuffled = [given_sentences[k] for k in order]
    together = ELMO.encode_layers(shuffled, batch_tokens=batch_tokens)  # its cache remembers earlier examples
    for k, got in zip(order, together, strict=True):
        assert got.shape == (3, len(given_sentences[k]), 12)
        np.testing.assert_allclose(got, alone[k], atol=1e-5)


@given(sentences)
def test_every_sentence_equals_the_reference(given_sentences: list[list[str]]) -> None:
    for got, s in zip(ELMO.encode_layers(given_sentences), given_sentences, strict=True):
        np.testing.assert_allclose(got, MODEL.embed(s), atol=1e-5)


@given(st.lists(st.lists(st.integers(0, 30), unique=True, max_size=20), max_size=12), st.integers(1, 12))
def test_the_cache_gives_what_the_encoder_gives(batches: list[list[int]], capacity: int) -> None:
    def encode(words: list[str]) -> torch.Tensor:
        return torch.tensor([[float(w), -float(w)] for w in words]).reshape(-1, 2)

    cache = WordCache(capacity, width=2, device=torch.device("cpu"), dtype=torch.float32)
    for batch in batches:
        words = list(map(str, batch))
        if words:
            torch.testing.assert_close(cache.vectors(words, encode), encode(words))  # type: ignore[arg-type]
        assert len(cache.slots) <= capacity
        assert sorted(cache.slots.values()) == list(range(len(cache.slots))), "every word has a slot of its own"
    info = cache.info
    assert info.hits + info.misses == sum(map(len, batches))


def test_known_words_are_not_encoded_again() -> None:
    elmo = Elmo(MODEL.pretrained, device="cpu", cache_words=4)
    elmo.encode([["a", "b", "a"]])
    assert elmo.cache_info == (0, 2, 2, 4)
    elmo.encode([["b", "c"]])
    assert elmo.cache_info == (1, 3, 3, 4)
    elmo.encode([["d", "e"]])  # "a" was not used for longest and leaves
    elmo.encode([["b", "a"]])
    assert elmo.cache_info == (2, 6, 4, 4)
    elmo.forget_words()
    assert elmo.cache_info.size == 0


def test_the_word_not_used_for_longest_leaves() -> None:
    elmo = Elmo(MODEL.pretrained, device="cpu", cache_words=2)
    elmo.encode([["a", "b"]])
    elmo.encode([["a"]])
    elmo.encode([["c"]])  # "b" leaves: "a" came before it, but was used after it
    assert elmo.cache_info == (1, 3, 2, 2)
    elmo.encode([["a"]])
    assert elmo.cache_info == (2, 3, 2, 2)


class TestOutOfMemory:
    batch: ClassVar = [(k, Sentence.of(["w"] * 8)) for k in range(8)]  # 80 positions

    def runner(self) -> Runner:
        return Runner(MODEL.pretrained.build(), ELMO.codec, cache_words=4)

    def shortages(self) -> list[BaseException]:
        """What running out of memory looks like: by Python and NumPy, by torch on a CPU, and on CUDA."""
        found: list[BaseException] = [torch.OutOfMemoryError("CUDA out of memory"), MemoryError("too large")]
        for allocate in (lambda: np.empty(1 << 50), lambda: torch.empty(1 << 50)):
            with pytest.raises((MemoryError, RuntimeError)) as caught:
                allocate()
            found.append(caught.value)
        return found

    def test_batches_are_halved_and_stay_small(self) -> None:
        for shortage in self.shortages():
            self.halves(shortage)

    def halves(self, shortage: BaseException) -> None:
        sizes: list[int] = []

        def run(part: list[tuple[int, Sentence]]) -> int:
            sizes.append(len(part))
            if positions(part) > 25:
                raise shortage
            return len(part)

        runner = self.runner()
        done = list(runner.fitted(self.batch, run))
        assert [k for part, _ in done for k, _ in part] == list(range(8))
        assert sizes == [8, 4, 2, 2, 2, 2]
        assert [n for _, n in runner.fitted(self.batch, run)] == [2, 2, 2, 2]
        assert sizes[6:] == [2, 2, 2, 2], "what did not fit once is not tried again"

    def test_embedding_goes_on_with_smaller_batches(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As on a device whose memory holds 30 positions and no more."""
        text = [["w"] * (k % 7) + ["x"] for k in range(20)]
        expected = Elmo(MODEL.pretrained, device="cpu").encode_layers(text)
        real, refused = Runner.stack, []

        def stack(runner: Runner, batch: list[Sentence]) -> object:
            if len(batch) * max(len(s) + 2 for s in batch) > 30:
                refused.append(len(batch))
                raise torch.OutOfMemoryError("CUDA out of memory")
            return real(runner, batch)

        monkeypatch.setattr(Runner, "stack", stack)
        elmo = Elmo(MODEL.pretrained, device="cpu")
        for got, want in zip(elmo.encode_layers(text), expected, strict=True):
            np.testing.assert_allclose(got, want, atol=1e-6)
        assert refused
        tried = len(refused)
        elmo.encode_layers(text)
        assert len(refused) == tried, "it remembers what fits"

    def test_one_sentence_too_large_says_what_to_do(self) -> None:
        def run(part: object) -> None:
            raise torch.OutOfMemoryError("too large")

        with pytest.raises(ElmokitError, match="a sentence of 8 tokens does not fit into the memory of cpu; split it"):
            list(self.runner().fitted(self.batch[:1], run))

    def test_other_errors_are_not_taken_for_it(self) -> None:
        def run(part: object) -> None:
            raise RuntimeError("something else")

        with pytest.raises(RuntimeError, match="something else"):
            list(self.runner().fitted(self.batch, run))


class TestCarriedState:
    def test_rows_go_on_where_they_were(self) -> None:
        session = Elmo(MODEL.pretrained, device="cpu").carry()
        first = session.encode_layers([["a", "b"], ["c"]])
        second = session.encode_layers([["a", "b"], ["c"]])
        assert np.abs(second[0][1:] - first[0][1:]).max() > 1e-3
        np.testing.assert_allclose(second[0][0], first[0][0], atol=1e-6, err_msg="the token layer has no state")
        session.reset()
        np.testing.assert_array_equal(session.encode_layers([["a", "b"], ["c"]])[0], first[0])

    def test_rows_beyond_the_batch_keep_theirs_and_new_rows_start_from_zero(self) -> None:
        import reference

        session = Elmo(MODEL.pretrained, device="cpu").carry()
        batches = [[["a"], ["b", "c"]], [["d"]], [["e"], [], ["f", "g"]], [["h"], ["i"], ["j"]]]
        states: dict[int, reference.State] = {}
        for batch in batches:
            got = session.encode_layers(batch)
            for row, sentence in enumerate(batch):
                want, states[row] = reference.embed(MODEL.weights, MODEL.options, sentence, states.get(row))
                np.testing.assert_allclose(got[row], reference.drop_boundaries(want), atol=1e-5)

    def test_no_batch_changes_nothing(self) -> None:
        session = Elmo(MODEL.pretrained, device="cpu").carry()
        assert session.encode_layers([]) == []
