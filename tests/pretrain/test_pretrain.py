"""`elmokit pretrain`, end to end: raw text in, a model out that predicts, embeds, exports and migrates."""

import gzip
import json
import math
import os
import re
import signal
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_runs as runs
import torch

from elmokit import Elmo
from elmokit.compat.allennlp import ElmoEmbedder
from elmokit.errors import InputError
from elmokit.lm import LanguageModel
from elmokit.pretrain import trainer as trainer_module
from elmokit.pretrain.config import PretrainConfig, load_config
from elmokit.pretrain.corpus.manifest import PreparedCorpus
from elmokit.pretrain.corpus.text import Corpus
from elmokit.pretrain.journal import Journal, duration
from elmokit.pretrain.run import pretrain
from elmokit.text import load_tokenizer
from elmokit.weights import AdaptiveTensors, load_pretrained

SENTENCE = ["Ann", "gives", "the", "cat", "some", "milk", "."]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_text(tmp_path_factory.mktemp("text") / "text.txt")


@pytest.fixture(scope="module")
def run(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learnt the toy language."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    ended = runs.run_here(
        runs.pretraining(text, output=folder, steps=400, learning_rate=0.02, rows=8, valid_every=80, log_every=20)
    )
    assert ended.status == 0
    assert ended.said.endswith(f"the model is in {folder / 'model'}\n")
    return folder


def test_perplexity_falls_and_the_log_tells(run: Path) -> None:
    found = runs.perplexities_of(run)
    assert len(found) == 5
    assert found[-1] < 2.5 < found[0]  # few words leave any doubt in the toy language
    losses = runs.losses_of(run)
    assert losses[400] < 0.6 * losses[20]
    lines = runs.log_of(run)
    assert {"loss", "gradient_norm", "tokens_per_second", "learning_rate", "epoch"} <= lines[0].keys()
    last = [line for line in lines if "perplexity" in line][-1]
    assert last["perplexity"] == pytest.approx(math.sqrt(last["perplexity_forward"] * last["perplexity_backward"]))
    assert list((run / "tensorboard").glob("events*"))


def test_the_model_predicts(run: Path) -> None:
    lm = LanguageModel.from_pretrained(run / "model", device="cpu")
    filled = lm.fill("Ann gives the horse some ___ .")
    assert filled.forward is not None
    assert filled.forward[0].word == "hay"
    assert lm.next_words("Ben gives")[0].word == "the"
    # What the run said about the held-out text is what the saved model says.
    said = json.loads((run / "model" / "config.json").read_text())["extra"]["training"]["heldout_perplexity"]
    assert said["mean"] == min(runs.perplexities_of(run))
    assert lm.perplexity([SENTENCE]).mean < 5


def test_the_card_says_how_it_was_trained(run: Path) -> None:
    card = (run / "model" / "README.md").read_text()
    report = PreparedCorpus.open(run / "corpus").report
    assert (
        f"| pre-trained on | {report.tokens:,} tokens, {report.sentences:,} sentences, {report.types} types |" in card
    )
    predictions = report.heldout_tokens + report.heldout_sentences  # of each token, and of each sentence's end
    found = f"{min(runs.perplexities_of(run)):.2f}, on {predictions} predictions each way"
    assert f"| held-out perplexity | {found} |" in card
    assert "| settings | 400 steps, rows 8, window 6, optimizer adamw, learning_rate 0.02, dropout 0.1," in card
    assert "--dtype int8" in card
    assert runs.run_here(["convert", str(run / "model"), str(run / "small"), "--dtype", "int8"]).status == 0
    small = (run / "small" / "README.md").read_text()
    assert "| settings | 400 steps" in small
    assert "--dtype int8" not in small


def test_held_out_perplexity_is_that_of_the_saved_model(run: Path) -> None:
    corpus = PreparedCorpus.open(run / "corpus")
    sentences = [corpus.lexicon.words(ids) for ids in corpus.heldout]
    assert 20 < len(sentences) < 60
    report = LanguageModel.from_pretrained(run / "model", device="cpu").perplexity(sentences)
    assert report.mean == pytest.approx(min(runs.perplexities_of(run)), rel=1e-5)
    assert report.unknown > 0


def test_it_embeds_exports_and_migrates_with_the_same_vectors(run: Path, tmp_path: Path) -> None:
    layers = Elmo.from_pretrained(run / "model", device="cpu").encode_layers([SENTENCE])[0]  # (L, T, D)
    assert layers.shape == (3, len(SENTENCE), 16)
    official = tmp_path / "official"
    assert runs.run_here(["convert", str(run / "model"), str(official), "--to", "official"]).status == 0
    assert {path.name for path in official.iterdir()} >= {"options.json", "weights.hdf5", "vocab.txt"}
    ours, theirs = (load_pretrained(folder) for folder in (run / "model", official))
    for name, values in ours.tensors.items():
        assert torch.equal(values, theirs.tensors[name]), name
    exported = Elmo(theirs, device="cpu").encode_layers([SENTENCE])[0]
    np.testing.assert_allclose(exported, layers, rtol=0, atol=2e-6)  # where numbers lie in memory shows in the last bit
    embedder = ElmoEmbedder(str(official / "options.json"), str(official / "weights.hdf5"))
    np.testing.assert_allclose(
        embedder.embed_sentence(SENTENCE), exported, rtol=1e-6, atol=2e-6
    )  # sums in another order


OPTIONS: dict[str, dict[str, Any]] = {
    "carried state in corpus order": {"state": "carry", "order": "corpus"},
    "random state": {"state": "random", "reset_probability": 0.3},
    "adagrad": {"optimizer": "adagrad", "learning_rate": 0.2, "clip_norm": 10.0},
    "adaptive": {"softmax": "adaptive"},
    "full": {"softmax": "full"},
    "repeated": {"sampling": "repeated"},
    "published": {"sampling": "published"},
    "forward": {"directions": "forward"},
    "backward": {"directions": "backward"},
    "words": {"input": "words"},
    "parts": {"accumulate": 2},
    "bfloat16": {"precision": "bfloat16"},
    "one layer, no projection, no clips": {"n_layers": 1, "cell_dim": 8, "cell_clip": 0, "proj_clip": 0},
    "tanh, no highway, no skips": {"activation": "tanh", "n_highway": 0, "skip_connections": False},
    "nothing held out": {"heldout": 0.0},
    "sentences, epochs": {"lines": "sentences", "epochs": 0.4, "steps": 0},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_trains_and_gives_a_model(name: str, text: Path, tmp_path: Path) -> None:
    changes = {"steps": 60, "valid_every": 60, "checkpoint_every": 1000, "log_every": 10, **OPTIONS[name]}
    folder = tmp_path / "run"
    ended = runs.run_here(runs.pretraining(text, output=folder, **changes))
    assert ended.status == 0, ended.said
    losses = list(runs.losses_of(folder).values())
    assert np.mean(losses[-2:]) < 0.85 * losses[0]
    lm = LanguageModel.from_pretrained(folder / "model", device="cpu")
    report = lm.perplexity([SENTENCE])
    assert report.mean < 40
    assert (report.forward is None) == (name == "backward")
    assert (report.backward is None) == (name == "forward")
    vectors = Elmo.from_pretrained(folder / "model", device="cpu").encode_tokens([SENTENCE])[0]
    assert vectors.shape == (7, 8 if name in ("forward", "backward") else 16)
    assert bool(np.isfinite(vectors).all())
    saved = load_pretrained(folder / "model")
    assert isinstance(saved.softmax, AdaptiveTensors) == (name == "adaptive")
    assert (saved.codec.kind == "words") == (name == "words")
    if name == "nothing held out":
        assert not runs.perplexities_of(folder)
        assert "perplexity" not in ended.said
        assert saved.extra["training"]["heldout_perplexity"] is None
    if name == "sentences, epochs":
        positions = saved.extra["training"]["corpus"]["tokens"] + saved.extra["training"]["corpus"]["sentences"]
        assert runs.checkpoint_of(folder)["progress"]["step"] == round(0.4 * positions / 24)


def test_words_read_as_ids_know_nothing_of_their_letters(text: Path, tmp_path: Path) -> None:
    runs.run_here(runs.pretraining(text, output=tmp_path, steps=5, input="words"))
    elmo = Elmo.from_pretrained(tmp_path / "model", device="cpu")
    a, b, c = elmo.encode_tokens([["Ann", "unheard"], ["Ann", "of"], ["Ann", "cat"]])
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_compressed_and_json_text_is_read_alike(text: Path, tmp_path: Path) -> None:
    plain = text.read_text(encoding="utf-8")
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress(plain.encode()))
    records = [json.dumps({"id": k, "body": line}) for k, line in enumerate(plain.splitlines())]
    (tmp_path / "text.jsonl").write_text("\n".join(records), encoding="utf-8")
    sources: dict[str, tuple[Path, dict[str, str]]] = {
        "plain": (text, {}),
        "gz": (tmp_path / "text.txt.gz", {}),
        "jsonl": (tmp_path / "text.jsonl", {"text_field": "body"}),
    }
    found = {}
    for name, (path, changes) in sources.items():
        # The share held out depends on the files' sizes, so other text stands in for it.
        command = runs.pretraining(path, output=tmp_path / name, steps=10, **changes)
        assert runs.run_here([*command, "--heldout-corpus", str(text)]).status == 0
        found[name] = (tmp_path / name / "model" / "model.safetensors").read_bytes()
    assert found["plain"] == found["gz"] == found["jsonl"]


def test_load_text_can_be_shared(text: Path, tmp_path: Path) -> None:
    first = runs.pretraining(text, output=tmp_path / "a", steps=3)
    assert runs.run_here([*first, "--prepared", str(tmp_path / "shared")]).status == 0
    before = (tmp_path / "shared" / "manifest.json").stat().st_mtime_ns
    second = runs.pretraining(text, output=tmp_path / "b", steps=3, seed=2)
    assert runs.run_here([*second, "--prepared", str(tmp_path / "shared")]).status == 0
    assert (tmp_path / "shared" / "manifest.json").stat().st_mtime_ns == before
    assert not (tmp_path / "b" / "corpus").exists()


def test_prepared_text_is_not_replaced_by_other_text(text: Path, tmp_path: Path) -> None:
    ready, quick = tmp_path / "ready", {"steps": 2, "valid_every": 2}
    assert runs.run_here(runs.pretraining(text, output=tmp_path / "a", prepared=ready, **quick)).status == 0
    whole = {path.name: path.read_bytes() for path in ready.iterdir()}
    other = runs.run_here(runs.pretraining(text, output=tmp_path / "b", prepared=ready, vocab_size=50, **quick))
    assert other.status == 2
    assert f"{ready}: holds text that was prepared from other text or with other settings" in other.said
    os.utime(text)
    moved = runs.run_here(runs.pretraining(text, output=tmp_path / "b", prepared=ready, **quick))
    assert "from files of the same sizes, which then had another date or place; to train on" in moved.said
    assert {path.name: path.read_bytes() for path in ready.iterdir()} == whole
    (ready / "manifest.json").unlink()  # what is not whole may go
    assert runs.run_here(runs.pretraining(text, output=tmp_path / "b", prepared=ready, **quick)).status == 0


def test_text_prepared_elsewhere_trains_the_same_model(tmp_path: Path) -> None:
    text = runs.write_text(tmp_path / "text.txt")
    ended = runs.run_here(runs.pretraining(text, output=tmp_path / "usual", steps=5))
    assert ended.status == 0, ended.said
    ready = tmp_path / "ready"
    made = runs.run_here([*runs.pretraining(text, output=tmp_path / "none", prepared=ready), "--prepare-only"])
    assert made.status == 0, made.said
    assert not (tmp_path / "none").exists()
    text.unlink()
    ended = runs.run_here(runs.pretraining(output=tmp_path / "here", steps=5, prepared=ready))
    assert ended.status == 0, ended.said
    runs.assert_same_run(tmp_path / "usual", tmp_path / "here")
    odd = [*runs.pretraining(output=tmp_path / "odd", steps=2, prepared=ready), "--dedupe", "--heldout=0.3"]
    told = runs.run_here([word for word in odd if word != "--quiet"])
    assert told.status == 0, told.said
    assert "the text was prepared with dedupe False (not True), heldout " in told.said
    recorded = [
        json.loads((tmp_path / name / "model/config.json").read_text(encoding="utf-8"))["extra"]["training"]["config"]
        for name in ("odd", "here")
    ]
    assert {one["heldout"] for one in recorded} == {runs.TRAINING["heldout"]}
    assert [one["dedupe"] for one in recorded] == [False, False]
    for changed, why in [
        ({"vocab_size": 50, "prepared": ready}, "but vocab_size has 50"),
        ({"vocab_size": 9000, "prepared": ready}, "but vocab_size has 9,000"),
        ({}, "no text was given; name a corpus, or with --prepared"),
    ]:
        ended = runs.run_here(runs.pretraining(output=tmp_path / "other", **changed))
        assert ended.status == 2
        assert why in ended.said
    for mode in ("--plan", "--prepare-only"):
        ended = runs.run_here([*runs.pretraining(output=tmp_path / "other", prepared=ready), mode])
        assert ended.status == 2
        assert "no text was given; name a corpus\n" in ended.said
    ended = runs.run_here([*runs.pretraining(text, output=tmp_path / "other"), "--prepare-only"])
    assert ended.status == 2
    assert "say where with --prepared FOLDER" in ended.said
    with pytest.raises(InputError, match="there is no text to train on"):
        pretrain(load_config("tiny"), None, tmp_path / "other")


def test_early_stop_keeps_the_best_and_stays_stopped(text: Path, tmp_path: Path) -> None:
    command = runs.pretraining(text, output=tmp_path, steps=2000, patience=2, valid_every=10, learning_rate=0.3)
    ended = runs.run_here(command)
    assert ended.status == 0
    found = runs.perplexities_of(tmp_path)
    assert 3 <= len(found) < 200
    assert len(found) - 1 - found.index(min(found)) == 2  # neither one more nor one fewer
    said = json.loads((tmp_path / "model" / "config.json").read_text())["extra"]["training"]["heldout_perplexity"]
    assert said["mean"] == min(found)
    step = runs.checkpoint_of(tmp_path)["progress"]["step"]
    assert f"no better validation in 2: stopped by --patience at step {step:,} of 2,000; best held-out" in ended.said
    assert runs.run_here(command) == ended


@pytest.mark.parametrize("budget", [{"steps": 300}, {"minutes": 0.05}])
def test_with_more_patience_a_run_that_stopped_early_goes_on(
    text: Path, tmp_path: Path, budget: dict[str, float]
) -> None:
    usual: dict[str, Any] = {**budget, "valid_every": 10, "learning_rate": 1e-12}
    stopped = runs.run_here(runs.pretraining(text, output=tmp_path, patience=1, **usual))
    assert "no better validation in 1: stopped by --patience at step" in stopped.said
    at = runs.checkpoint_of(tmp_path)["progress"]["step"]
    ended = runs.run_here(runs.pretraining(text, output=tmp_path, patience=0, **usual))
    assert ended.status == 0, ended.said
    step = runs.checkpoint_of(tmp_path)["progress"]["step"]
    assert step == budget.get("steps", step) > at
    assert f"finished after {step:,} steps" in ended.said
    assert runs.run_here(runs.pretraining(text, output=tmp_path, patience=1, **usual)) == ended  # whole: no more to do


def test_a_time_budget_ends_by_the_clock(text: Path, tmp_path: Path) -> None:
    ended = runs.run_here(runs.pretraining(text, output=tmp_path, minutes=0.03, checkpoint_minutes=0.01))
    assert ended.status == 0
    progress = runs.checkpoint_of(tmp_path)["progress"]
    assert 1.8 <= progress["seconds"] < 6
    rates = [line["learning_rate"] for line in runs.log_of(tmp_path) if "loss" in line]
    assert rates[-1] < 0.1 * max(rates)  # the schedule followed it


def test_the_bar_shows_the_time_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Journal(tmp_path, "training", step=0) as journal:
        (task,) = journal.progress.tasks
        journal.tick(1234, 0.5, 3723.4)
        assert (task.percentage, task.fields["step"], task.fields["left"]) == (50, 1234, "1:02:03 left")
        journal.show("5 tokens/s")
        journal.validating(1, 4)
        assert task.fields["facts"] == "held-out text 25%"
        journal.validating(4, 4)
        assert task.fields["facts"] == "5 tokens/s"
        journal.tick(1235, 0.6, 3700.0)
    assert task.percentage == 60  # and not 100 where patience ended the run
    assert [duration(s) for s in (5, 89, 600, 7500)] == ["5 s", "89 s", "10 min", "2 h 5 min"]


def test_a_time_budget_knows_how_much_is_left(text: Path, tmp_path: Path) -> None:
    command = runs.pretraining(text, output=tmp_path, minutes=0.08)
    ended = runs.run_here([word for word in command if word != "--quiet"])
    assert ended.status == 0
    said = re.search(r"tokens/s: (\d+) s for [\d,]+ steps", ended.said)
    assert said is not None
    assert 1 <= int(said[1]) <= 5  # of the 4.8 seconds, those that were left when some steps had been timed


def test_it_trains_from_python_in_any_thread(tmp_path: Path) -> None:
    texts = runs.write_text(tmp_path / "text.txt").read_text(encoding="utf-8").splitlines()
    corpus = Corpus(texts=texts, tokenizer=load_tokenizer("whitespace"))
    config = PretrainConfig(
        cell_dim=16, projection_dim=8, filters=((1, 4), (2, 4)), rows=4, window=6, samples=10, steps=5, workers=1
    )
    ended: list[trainer_module.Progress] = []
    thread = threading.Thread(
        target=lambda: ended.append(pretrain(config, corpus, tmp_path / "run", device="cpu", show=False))
    )
    thread.start()
    thread.join()
    assert ended[0].step == 5
    assert ended[0].done
    assert isinstance(load_pretrained(tmp_path / "run" / "model").tensors["lstm.0.bias"], torch.Tensor)


def test_nothing_of_the_caller_changes(text: Path, tmp_path: Path) -> None:
    torch.manual_seed(7)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    before = torch.get_rng_state(), list(warnings.filters), torch.get_num_threads(), np.random.get_state()[1].tolist()
    command = runs.pretraining(text, output=tmp_path / "run", steps=5, dropout=0.2, seed=3)
    assert runs.run_here(command).status == 0
    tuning = runs.finetuning(tmp_path / "run" / "model", text, output=tmp_path / "tuned", steps=5, dropout=0.2)
    assert runs.run_here(tuning).status == 0
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (list(warnings.filters), torch.get_num_threads(), np.random.get_state()[1].tolist()) == before[1:]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("gpu", "device 'gpu' not understood; expected auto, cpu, cuda or cuda:N"),
        ("cuda:99", "device 'cuda:99' asked for, but torch sees"),
    ],
)
def test_a_device_that_is_not_there_is_refused(text: Path, tmp_path: Path, device: str, message: str) -> None:
    command = [*runs.pretraining(text, output=tmp_path / "run", steps=2), "--device", device]
    ended = runs.run_here(command)
    assert (ended.status, ended.said.count("\n")) == (2, 1)
    assert message in ended.said
    assert not (tmp_path / "run").exists()
    assert runs.run_here([*command, "--device", "auto"]).status == 0


def test_steps_leave_nothing_behind(text: Path, tmp_path: Path) -> None:
    """Seeding all of torch in every step would leave a note for each device that is not there."""
    waiting = len(torch.cuda._queued_calls)
    assert runs.run_here(runs.pretraining(text, output=tmp_path, steps=20, dropout=0.2)).status == 0
    assert len(torch.cuda._queued_calls) == waiting
