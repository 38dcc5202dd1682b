"""`--recase`: sentences read in lower case or in capitals, while the words to predict stay as they are written."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_runs as runs
import torch
from test_windows import Listed

from elmokit.chars import BOS, ByteCodec
from elmokit.nn.bilm import BiLM
from elmokit.nn.score import score
from elmokit.nn.softmax import Softmax
from elmokit.pretrain.corpus.manifest import PreparedCorpus
from elmokit.pretrain.step import TypeCodes
from elmokit.pretrain.teacher import Teacher
from elmokit.pretrain.windows import AS_WRITTEN, BOS_ID, EOS_ID, LOWER, UPPER, Position, WindowPlan, lay_out, windows
from elmokit.weights import SoftmaxTensors, load_pretrained

CPU = torch.device("cpu")
QUICK: dict[str, Any] = {"steps": 60, "valid_every": 60, "checkpoint_every": 20}
WORDS = 40


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_text(tmp_path_factory.mktemp("text") / "text.txt")


def sentences(n: int = 2000) -> Listed:
    dice = np.random.default_rng(5)
    return Listed([dice.integers(3, WORDS, size=dice.integers(1, 9)).tolist() for _ in range(n)])


def test_whole_sentences_change_their_form_and_targets_stay() -> None:
    found = sentences()
    plain = WindowPlan(rows=1, steps=1, vocabulary=30, order="corpus")
    recased = WindowPlan(rows=1, steps=1, vocabulary=30, order="corpus", recase=0.3, words=WORDS)
    before, after = (lay_out(found, plan, 0, (0, len(found))) for plan in (plain, recased))
    assert np.array_equal(before.targets, after.targets)
    assert np.array_equal(before.keep, after.keep)
    assert np.array_equal(before.inputs, after.inputs % WORDS)
    forms = after.inputs // WORDS
    marks = ~before.keep[0]  # each sentence begins with one, which has one form only
    assert not forms[:, 0, marks].any()
    assert set(before.inputs[:, 0, marks].ravel().tolist()) == {BOS_ID, EOS_ID}
    number = np.cumsum(marks) - 1  # of each position's sentence
    counts = dict.fromkeys((AS_WRITTEN, LOWER, UPPER), 0)
    for k in range(len(found)):
        here = (number == k) & ~marks
        (form,) = set(forms[:, 0, here].ravel().tolist())  # one form for a sentence, in both directions
        counts[form] += 1
    assert counts[LOWER] == pytest.approx(0.15 * len(found), rel=0.2)
    assert counts[UPPER] == pytest.approx(0.15 * len(found), rel=0.2)


def test_other_sentences_in_another_epoch() -> None:
    found, plan = sentences(), WindowPlan(rows=1, steps=1, vocabulary=30, order="corpus", recase=0.3, words=WORDS)
    first, again, second = (lay_out(found, plan, epoch, (0, len(found))).inputs for epoch in (0, 0, 1))
    assert np.array_equal(first, again)
    changed = (first // WORDS) != (second // WORDS)
    assert 0.3 < changed.mean() < 0.6


def test_a_window_holds_the_words_in_their_forms() -> None:
    plan = WindowPlan(rows=4, steps=5, vocabulary=30, recase=1.0, words=WORDS)
    (window,) = next(windows(sentences(), plan, start=Position(), parts=[slice(None)]))
    read = window.types[window.which]
    assert set((read // WORDS).ravel().tolist()) == {AS_WRITTEN, LOWER, UPPER}
    assert np.all((read // WORDS == AS_WRITTEN) == (read < 2))
    assert window.targets.max() < 30


def test_the_rows_of_a_form_are_those_of_the_words_in_it(text: Path, tmp_path: Path) -> None:
    text = tmp_path / "words.txt"
    text.write_text("Łucja traf Straße in ŁÓDŹ mcDonald .\n" * 40, encoding="utf-8")
    assert runs.run_here(runs.pretraining(text, output=tmp_path / "run", steps=1)).status == 0
    lexicon = PreparedCorpus.open(tmp_path / "run" / "corpus").lexicon
    words, codec = lexicon.words(np.arange(len(lexicon))), ByteCodec(50)
    assert "Straße" in words
    codes = TypeCodes(lexicon, codec, device=CPU, recased=True)
    for form, change in ((AS_WRITTEN, str), (LOWER, str.lower), (UPPER, str.upper)):
        rows = codes(np.arange(form * codes.words, (form + 1) * codes.words)).numpy()
        wanted = codec.encode([change(word) if k >= 2 else word for k, word in enumerate(words)])
        at = slice(0 if form == AS_WRITTEN else 2, None)  # marks are never read in another form
        assert np.array_equal(rows[at], wanted[at])
    assert words[BOS_ID] == BOS
    mixed = np.array([3, codes.words + 4, 2 * codes.words + 5])
    assert np.array_equal(
        codes(mixed).numpy(), codec.encode([words[3], words[4].lower(), words[5].upper()])
    )  # several forms at once


def perplexity_in_capitals(folder: Path) -> float:
    """Of the held-out text as it is written, read in capitals."""
    saved, corpus = load_pretrained(folder / "model"), PreparedCorpus.open(folder / "corpus")
    assert isinstance(saved.softmax, SoftmaxTensors)
    bilm = BiLM(saved.config)
    bilm.load_state_dict(saved.tensors)
    softmax = Softmax(*saved.softmax.weight.shape)
    softmax.load_state_dict(saved.softmax.named)
    codes = TypeCodes(corpus.lexicon, ByteCodec(50), device=CPU, recased=True)
    total = n = 0.0
    for ids in corpus.heldout:
        row = np.array([BOS_ID, *ids.tolist(), EOS_ID])
        read = np.where(row < 2, row, row + UPPER * codes.words)
        targets = np.where(row < len(corpus.vocabulary), row, 2)
        found = score(
            bilm.eval(), softmax, codes(read), torch.arange(len(row))[None], np.array([len(row)]),
            torch.from_numpy(targets)[None],
        )  # fmt: skip
        assert found.forward is not None
        total, n = total + float(found.forward.sum()), n + len(row) - 1
    return float(np.exp(total / n))


def test_a_model_learns_to_read_capitals(text: Path, tmp_path: Path) -> None:
    for share in (0.0, 0.5):
        command = runs.pretraining(text, output=tmp_path / str(share), steps=250, valid_every=250, recase=share)
        assert runs.run_here(command).status == 0
    blind, reader = (perplexity_in_capitals(tmp_path / str(share)) for share in (0.0, 0.5))
    assert reader < 0.7 * blind


def test_the_teacher_reads_what_is_written(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runs.run_here(runs.pretraining(text, output=tmp_path / "teacher", steps=2)).status == 0
    corpus = PreparedCorpus.open(tmp_path / "teacher" / "corpus")
    plain = TypeCodes(corpus.lexicon, ByteCodec(50), device=CPU)(np.arange(len(corpus.lexicon)))
    known, given, read = {tuple(row) for row in plain.tolist()}, Teacher.layers, []

    def layers(self: Teacher, types: torch.Tensor, *more: Any) -> Any:
        read.extend(map(tuple, types.tolist()))
        return given(self, types, *more)

    monkeypatch.setattr(Teacher, "layers", layers)
    command = runs.pretraining(text, output=tmp_path / "learner", steps=5, recase=1.0)
    assert runs.run_here([*command, "--teacher", str(tmp_path / "teacher" / "model")]).status == 0
    assert read
    assert set(read) <= known


def test_a_killed_run_ends_with_the_same_weights(text: Path, tmp_path: Path) -> None:
    settings = {**QUICK, "recase": 0.4}
    assert runs.run_here(runs.pretraining(text, output=tmp_path / "a", **settings)).status == 0
    command = runs.pretraining(text, output=tmp_path / "b", **settings)
    process = runs.start(command)
    runs.wait_for_step(tmp_path / "b", 25, process)
    process.send_signal(signal.SIGKILL)
    runs.end(process)
    assert runs.run_here(command).status == 0
    runs.assert_same_run(tmp_path / "a", tmp_path / "b")
