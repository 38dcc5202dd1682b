"""`elmokit finetune`: from any format, with a softmax or without, killed or not."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import small_runs as runs
import torch

import models
from elmokit import Elmo
from elmokit.errors import ConfigError, WeightsError
from elmokit.lm import LanguageModel
from elmokit.nn.softmax import AdaptiveSoftmax
from elmokit.pretrain.config import load_finetune_config
from elmokit.pretrain.corpus.manifest import PreparedCorpus
from elmokit.pretrain.finetune import Output
from elmokit.weights import (
    AdaptiveTensors,
    Pretrained,
    SoftmaxTensors,
    TokenizerSpec,
    load_pretrained,
    save_pretrained,
)

QUICK: dict[str, Any] = {"steps": 40, "valid_every": 40, "checkpoint_every": 20, "softmax_epochs": 0.3}
MANYLANGS = Path(__file__).parents[1] / "data" / "manylangs"
# The order in which bilm-tf's published vocabulary has the marks.
VOCABULARY = ("</S>", "<S>", "<UNK>", ".", "gives", "the", "some", "cat", "milk", "today", "elsewhere")
# Another order, in which bringing the marks to the front and back are not the same permutation.
SCATTERED = (".", "gives", "</S>", "the", "some", "<UNK>", "cat", "milk", "<S>", "today", "elsewhere")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_text(tmp_path_factory.mktemp("text") / "text.txt")


@pytest.fixture
def with_softmax() -> Pretrained:
    softmax = SoftmaxTensors(
        0.1 * torch.randn(len(VOCABULARY), 6, generator=torch.Generator().manual_seed(1)), torch.zeros(len(VOCABULARY))
    )
    return replace(models.tiny().pretrained, vocabulary=VOCABULARY, softmax=softmax)


def tuned(model: Path, text: Path, output: Path, **changes: Any) -> runs.Ended:
    ended = runs.run_here(runs.finetuning(model, text, output=output, **{**QUICK, **changes}))
    assert ended.status == 0, ended.said
    return ended


def numbers_in(said: str) -> tuple[float, float]:
    """Perplexity before and after, as shown."""
    line = next(line for line in said.splitlines() if line.startswith("held-out perplexity:"))
    words = line.replace(",", "").split()
    return float(words[2]), float(words[-2])


@pytest.mark.parametrize("words", [VOCABULARY, SCATTERED])
def test_a_model_with_softmax_keeps_its_words(
    with_softmax: Pretrained, text: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    save_pretrained(replace(with_softmax, vocabulary=words), tmp_path / "model")
    ended = tuned(tmp_path / "model", text, tmp_path / "out")
    before, after = numbers_in(ended.said)
    assert after < 0.8 * before
    assert not (tmp_path / "out" / "softmax").exists()
    assert f"held-out perplexity | {after:.2f} ({before:.2f} before)" in (tmp_path / "out/model/README.md").read_text()
    assert f"elmokit convert {tmp_path / 'out' / 'model'} SMALLER --dtype int8" in ended.said
    assert not (tmp_path / "out" / "official").exists()
    saved = load_pretrained(tmp_path / "out" / "model")
    assert saved.vocabulary == words  # in its own order
    told = saved.extra["finetuning"]
    assert told["heldout_perplexity_before"]["mean"] == pytest.approx(before, abs=0.01)
    assert told["heldout_perplexity"]["mean"] == pytest.approx(after, abs=0.01)
    # The rows belong to the words they belonged to: models before and after say what was told.
    corpus = [line.split() for line in text.read_text(encoding="utf-8").splitlines()]
    first, last = (
        LanguageModel.from_pretrained(tmp_path / m, device="cpu", tokenizer="whitespace")
        for m in ("model", "out/model")
    )
    assert first.perplexity(corpus).mean == pytest.approx(before, rel=0.1)
    assert last.perplexity(corpus).mean == pytest.approx(after, rel=0.1)
    assert saved.tokenizer is not None
    assert saved.tokenizer.name == "whitespace"
    assert (
        json.loads((tmp_path / "out" / "before.json").read_text())["mean"] == told["heldout_perplexity_before"]["mean"]
    )


def test_runs_share_prepared_text(with_softmax: Pretrained, text: Path, tmp_path: Path) -> None:
    save_pretrained(with_softmax, tmp_path / "model")
    written = []
    for name in ("a", "b"):
        tuned(tmp_path / "model", text, tmp_path / name, steps=3, prepared=tmp_path / "shared")
        written.append((tmp_path / "shared" / "manifest.json").stat().st_mtime_ns)
        assert not (tmp_path / name / "corpus").exists()
    assert written[0] == written[1]
    runs.assert_same_run(tmp_path / "a", tmp_path / "b")


def test_rare_words_are_not_added(with_softmax: Pretrained, tmp_path: Path) -> None:
    model, text, ready = tmp_path / "model", tmp_path / "text.txt", tmp_path / "ready"
    save_pretrained(replace(with_softmax, vocabulary=VOCABULARY), model)
    text.write_text("often often often rarely .\n" * 2 + "often .\n" * 40, encoding="utf-8")
    making = runs.finetuning(model, text, output=tmp_path / "none", prepared=ready, softmax_words=60, min_count=3)
    made = runs.run_here([*making, "--prepare-only"])
    assert made.status == 0, made.said
    words = (ready / "vocab.txt").read_text(encoding="utf-8").split("\n")
    assert set(words[: len(VOCABULARY)]) == set(VOCABULARY)
    assert "often" in words
    assert "rarely" not in words


@pytest.mark.parametrize("words", [VOCABULARY, SCATTERED])
def test_text_that_was_prepared_elsewhere(with_softmax: Pretrained, tmp_path: Path, words: tuple[str, ...]) -> None:
    model, text = tmp_path / "model", runs.write_text(tmp_path / "text.txt")
    save_pretrained(replace(with_softmax, vocabulary=words), model)
    usual: dict[str, Any] = {**QUICK, "steps": 3, "softmax_words": 25}
    tuned(model, text, tmp_path / "usual", **usual)
    making = runs.finetuning(model, text, output=tmp_path / "none", prepared=tmp_path / "ready", **usual)
    made = runs.run_here([*making, "--prepare-only"])
    assert made.status == 0, made.said
    assert f"the prepared text is in {tmp_path / 'ready'}" in made.said
    assert not (tmp_path / "none").exists()
    text.rename(tmp_path / "away.txt")
    usual["prepared"] = (tmp_path / "ready").rename(tmp_path / "moved")
    ended = runs.run_here(runs.finetuning(model, output=tmp_path / "here", **usual))
    assert ended.status == 0, ended.said
    runs.assert_same_run(tmp_path / "usual", tmp_path / "here")
    changes: list[tuple[dict[str, Any], str]] = [
        ({"softmax_words": 40}, "was prepared with a vocabulary of 25 words, but softmax_words has 40"),
        ({"softmax_words": 22}, "was prepared with a vocabulary of 25 words, but softmax_words has 22"),
        ({"softmax_words": 0}, f"was prepared with a vocabulary of 25 words, but the model has {len(words)}"),
        ({"tokenizer": "english"}, "was cut by the tokenizer 'whitespace' version"),
        ({"heldout_corpus": tmp_path / "away.txt"}, "prepared text has its held-out part already"),
        ({"prepared": tmp_path}, "holds no finished corpus"),
    ]
    for changed, why in changes:
        ended = runs.run_here(runs.finetuning(model, output=tmp_path / "other", **{**usual, **changed}))
        assert ended.status == 2
        assert why in ended.said
    save_pretrained(replace(with_softmax, vocabulary=(*words[:-1], "aardvark")), tmp_path / "other-words")
    ended = runs.run_here(runs.finetuning(tmp_path / "other-words", output=tmp_path / "other", **usual))
    assert ended.status == 2
    assert "does not begin with the words that the model predicts" in ended.said


def test_an_hdf5_model_comes_back_as_hdf5(text: Path, tmp_path: Path) -> None:
    tiny = models.tiny(models.tiny_options(lstm={"n_layers": 1}, note="kept"))
    save_pretrained(
        replace(tiny.pretrained, extra={"official": {"options": tiny.options}}), tmp_path / "model", format="official"
    )
    options = (tmp_path / "model" / "options.json").read_text()
    ended = tuned(tmp_path / "model" / "weights.hdf5", text, tmp_path / "out")
    assert "before (with a new softmax, the rest as it was)" in ended.said
    before, after = numbers_in(ended.said)
    assert after < before
    official = tmp_path / "out" / "official"
    assert (official / "options.json").read_text() == options
    with h5py.File(tmp_path / "model" / "weights.hdf5") as old, h5py.File(official / "weights.hdf5") as new:
        names: list[str] = []
        old.visititems(lambda name, node: names.append(name) if isinstance(node, h5py.Dataset) else None)
        assert "RNN_0/RNN/LSTMCell/W_0" in names
        for name in names:
            assert new[name].shape == old[name].shape
            assert new[name].dtype == old[name].dtype
            assert not np.array_equal(new[name][()], old[name][()])  # everything learnt
        assert set(new) - set(old) == {"softmax"}
    ours, theirs = (load_pretrained(tmp_path / "out" / name) for name in ("model", "official"))
    assert ours.config == theirs.config
    for name, values in ours.tensors.items():
        assert torch.equal(values, theirs.tensors[name])
    assert ours.vocabulary == theirs.vocabulary
    assert ours.vocabulary is not None
    assert "gives" in ours.vocabulary


@pytest.mark.parametrize("kind", ["both", "characters", "words"])
def test_manylangs_models_learn_with_their_own_dictionaries(kind: str, text: Path, tmp_path: Path) -> None:
    source = load_pretrained(MANYLANGS / kind)
    before, after = numbers_in(tuned(MANYLANGS / kind, text, tmp_path / "out").said)
    assert after < before
    saved = load_pretrained(tmp_path / "out" / "model")
    assert saved.codec == source.codec
    assert saved.config == source.config
    assert saved.origin == "manylangs"
    # What training read is what inference reads: the perplexity of the saved model is the one that was told.
    heldout = runs.perplexities_of(tmp_path / "out")[-1]
    corpus = PreparedCorpus.open(tmp_path / "out" / "corpus")
    sentences = [corpus.lexicon.words(ids) for ids in corpus.heldout]
    report = LanguageModel(saved, device="cpu").perplexity(sentences)
    assert report.mean == pytest.approx(heldout, rel=1e-4)


def test_the_first_stage_leaves_the_rest_frozen(text: Path, tmp_path: Path) -> None:
    plain = models.tiny().pretrained
    save_pretrained(plain, tmp_path / "model")
    tuned(tmp_path / "model", text, tmp_path / "out")
    first = runs.checkpoint_of(tmp_path / "out" / "softmax")["objective"]
    for name, values in plain.tensors.items():
        assert torch.equal(first[f"windows.bilm.{name}"], values.float()), name
    last = runs.checkpoint_of(tmp_path / "out")["objective"]
    changed = {name for name in first if not torch.equal(first[name], last[name])}
    assert changed == set(first)
    perplexities = runs.perplexities_of(tmp_path / "out" / "softmax")
    assert json.loads((tmp_path / "out" / "before.json").read_text())["mean"] == pytest.approx(perplexities[-1])


def test_word_level_models_predict_the_words_they_read(text: Path, tmp_path: Path) -> None:
    tiny = models.tiny_words().pretrained
    save_pretrained(replace(tiny, vocabulary=models.WORDS), tmp_path / "model", format="official")
    tuned(tmp_path / "model", text, tmp_path / "out")
    for folder in ("model", "official"):
        saved = load_pretrained(tmp_path / "out" / folder)
        assert saved.vocabulary == saved.codec.words == models.WORDS
        LanguageModel(saved, device="cpu").score([["the", "cat"]])


def test_an_adaptive_softmax_stays_one(text: Path, tmp_path: Path) -> None:
    words = ("<S>", "</S>", "<UNK>", *VOCABULARY[3:])
    layer = AdaptiveSoftmax(len(words), 6, cutoffs=(5,))
    softmax = AdaptiveTensors(len(words), 6, (5,), {n: t.detach() for n, t in layer.state_dict().items()})
    save_pretrained(replace(models.tiny().pretrained, vocabulary=words, softmax=softmax), tmp_path / "model")
    before, after = numbers_in(tuned(tmp_path / "model", text, tmp_path / "out").said)
    assert after < before
    saved = load_pretrained(tmp_path / "out" / "model").softmax
    assert isinstance(saved, AdaptiveTensors)
    assert saved.cutoffs == (5,)


def test_a_new_softmax_on_request(with_softmax: Pretrained, text: Path, tmp_path: Path) -> None:
    save_pretrained(with_softmax, tmp_path / "model")
    command = runs.finetuning(tmp_path / "model", text, output=tmp_path / "out", **QUICK)
    assert runs.run_here([*command, "--new-softmax"]).status == 0
    vocabulary = load_pretrained(tmp_path / "out" / "model").vocabulary
    assert vocabulary is not None
    assert vocabulary[:3] == ("<S>", "</S>", "<UNK>")
    assert "Łucja" in vocabulary
    assert "elsewhere" not in vocabulary


def test_what_does_not_fit_is_refused(with_softmax: Pretrained) -> None:
    config = load_finetune_config()
    with pytest.raises(ConfigError, match="softmax is adaptive, but the model has a plain one"):
        Output.of(with_softmax, load_finetune_config(flags={"softmax": "adaptive"}))
    with pytest.raises(WeightsError, match="the vocabulary lacks <S> <UNK>"):
        Output.of(replace(with_softmax, vocabulary=("</S>", *map(str, range(10)))), config)
    assert Output.of(replace(with_softmax, vocabulary=None), config).softmax is None  # rows of unknown words


def test_rows_come_back_to_their_words(with_softmax: Pretrained) -> None:
    model = replace(with_softmax, vocabulary=SCATTERED)
    output = Output.of(model, load_finetune_config())
    assert output.vocabulary is not None
    assert output.vocabulary.words[:4] == ("<S>", "</S>", "<UNK>", ".")
    assert isinstance(output.softmax, SoftmaxTensors)
    assert isinstance(model.softmax, SoftmaxTensors)
    for k, word in enumerate(output.vocabulary.words):
        assert torch.equal(output.softmax.weight[k], model.softmax.weight[SCATTERED.index(word)])
    for found, wanted in zip(output.restored(output.softmax), model.softmax, strict=True):
        assert torch.equal(found, wanted)


def test_another_version_of_the_tokenizer_is_refused(with_softmax: Pretrained, text: Path, tmp_path: Path) -> None:
    save_pretrained(replace(with_softmax, tokenizer=TokenizerSpec("english", 999)), tmp_path / "model")
    command = runs.finetuning(tmp_path / "model", text, output=tmp_path / "out", **{**QUICK, "tokenizer": "auto"})
    ended = runs.run_here(command)
    assert (ended.status, ended.said.count("\n")) == (2, 1)
    assert "tokenizer 'english' version 999 was asked for, but this elmokit has version" in ended.said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_in_either_stage_it_says_so_and_resumes(text: Path, tmp_path: Path, number: signal.Signals) -> None:
    save_pretrained(models.tiny().pretrained, tmp_path / "model")
    settings: dict[str, Any] = {**QUICK, "steps": 100_000, "softmax_epochs": 1000.0}
    process = runs.start(runs.finetuning(tmp_path / "model", text, output=tmp_path / "out", **settings))
    runs.wait_for_step(tmp_path / "out" / "softmax", 25, process)
    process.send_signal(number)
    ended = runs.end(process)
    assert ended.status == 128 + number
    step = runs.checkpoint_of(tmp_path / "out" / "softmax")["progress"]["step"]
    assert ended.said.splitlines()[1:] == [f"stopped at step {step:,}; the same command resumes there"]
    second = runs.start(runs.finetuning(tmp_path / "model", text, output=tmp_path / "out", **settings))
    runs.wait_for_step(tmp_path / "out" / "softmax", step + 10, second)
    busy = runs.run_here(runs.finetuning(tmp_path / "model", text, output=tmp_path / "out", **settings))
    assert "another process trains there" in busy.said
    second.kill()
    runs.end(second)


@pytest.mark.parametrize("stage", ["both", "first"])
def test_other_text_in_the_same_folder_is_refused_and_replaces_nothing(text: Path, tmp_path: Path, stage: str) -> None:
    save_pretrained(models.tiny().pretrained, tmp_path / "model")
    tuned(tmp_path / "model", text, tmp_path / "out")
    if stage == "first":
        shutil.rmtree(tmp_path / "out" / "checkpoints")
    prepared = runs.files_of(tmp_path / "out" / "corpus")
    other = runs.write_text(tmp_path / "other.txt", seed=1)
    ended = runs.run_here(runs.finetuning(tmp_path / "model", other, output=tmp_path / "out", **QUICK))
    assert ended.status == 2
    assert f"{tmp_path / 'out'}: holds a run on other text" in ended.said
    assert runs.files_of(tmp_path / "out" / "corpus") == prepared


def test_a_first_stage_that_diverges_names_its_own_rate(text: Path, tmp_path: Path) -> None:
    save_pretrained(models.tiny().pretrained, tmp_path / "model")
    settings: dict[str, Any] = {**QUICK, "softmax_epochs": 5.0, "softmax_rate": 1e20}
    ended = runs.run_here(runs.finetuning(tmp_path / "model", text, output=tmp_path / "out", **settings))
    assert ended.status == 2
    assert "with softmax_rate 1e+20" in ended.said
    assert "a lower softmax_rate" in ended.said
    assert "learning_rate" not in ended.said


@pytest.mark.parametrize("gone", ["before.json", "softmax/checkpoints"])
def test_perplexity_before_is_measured_again_with_the_new_softmax(text: Path, tmp_path: Path, gone: str) -> None:
    save_pretrained(models.tiny().pretrained, tmp_path / "model")
    ended = tuned(tmp_path / "model", text, tmp_path / "out")
    path = tmp_path / "out" / "before.json"
    before = path.read_bytes()
    path.unlink()
    if gone != path.name:
        shutil.rmtree(tmp_path / "out" / gone)
    assert tuned(tmp_path / "model", text, tmp_path / "out") == ended
    assert path.read_bytes() == before


def test_an_output_that_cannot_be_written(text: Path, tmp_path: Path) -> None:
    save_pretrained(models.tiny().pretrained, tmp_path / "model")
    (tmp_path / "file").write_text("")
    ended = runs.run_here(runs.finetuning(tmp_path / "model", text, output=tmp_path / "file" / "out", **QUICK))
    assert (ended.status, ended.said.count("\n")) == (2, 1)
    assert "out: cannot be written: Not a directory" in ended.said


def test_another_model_in_the_same_folder_is_refused(text: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        save_pretrained(models.tiny(seed=seed).pretrained, tmp_path / f"model{seed}")
    tuned(tmp_path / "model0", text, tmp_path / "out", steps=2, softmax_epochs=0.01)
    other = runs.finetuning(
        tmp_path / "model1", text, output=tmp_path / "out", **{**QUICK, "steps": 2, "softmax_epochs": 0.01}
    )
    ended = runs.run_here(other)
    assert ended.status == 2
    assert "holds a run of another configuration (model: " in ended.said


def test_killed_in_either_stage_it_ends_with_the_same_weights(text: Path, tmp_path: Path) -> None:
    save_pretrained(models.tiny().pretrained, tmp_path / "model", format="official")
    settings: dict[str, Any] = {**QUICK, "steps": 120, "softmax_epochs": 1.0, "dropout": 0.1}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    tuned(tmp_path / "model", text, whole, **settings)
    command = runs.finetuning(tmp_path / "model", text, output=killed, **settings)
    for stage, step in ((killed / "softmax", 45), (killed, 30)):
        process = runs.start(command)
        runs.wait_for_step(stage, step, process)
        process.kill()
        assert runs.end(process).status == -signal.SIGKILL
    shutil.rmtree(killed / "softmax" / "checkpoints")  # no longer needed
    again = runs.run_here(command)
    assert again.status == 0
    runs.assert_same_run(killed, whole)
    assert (killed / "official" / "options.json").read_bytes() == (whole / "official" / "options.json").read_bytes()
    assert runs.run_here(command) == again  # finished, and says so
    Elmo.from_pretrained(killed / "official", device="cpu").encode("It works .")
