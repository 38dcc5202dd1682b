"""`finetune --softmax-words`: a model that learns to predict more words than it did."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_runs as runs
import torch
from test_finetune import QUICK, SCATTERED, VOCABULARY, numbers_in, tuned

import models
from elmokit.errors import ConfigError
from elmokit.lm import LanguageModel
from elmokit.nn.softmax import AdaptiveSoftmax
from elmokit.pretrain.added_words import add_rows
from elmokit.pretrain.config import load_finetune_config
from elmokit.pretrain.corpus.manifest import PreparedCorpus
from elmokit.pretrain.finetune import Output
from elmokit.weights import AdaptiveTensors, SoftmaxTensors, load_pretrained, save_pretrained


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_text(tmp_path_factory.mktemp("text") / "text.txt")


def small_model(folder: Path, words: tuple[str, ...] = VOCABULARY) -> Path:
    rows = 0.1 * torch.randn(len(words), 6, generator=torch.Generator().manual_seed(1))
    softmax = SoftmaxTensors(rows, torch.linspace(-1, 1, len(words)))
    save_pretrained(replace(models.tiny().pretrained, vocabulary=words, softmax=softmax), folder)
    return folder


def test_new_rows_follow_from_spelling_and_frequency() -> None:
    source = torch.Generator().manual_seed(2)
    vectors, counts = torch.randn(400, 6, generator=source), torch.randint(1, 999, (400,), generator=source)
    by, tilt = torch.randn(6, 6, generator=source), torch.randn(6, generator=source)
    weight, bias = vectors @ by + 0.5, vectors @ tilt + 2 * counts.add(1).log()
    known = SoftmaxTensors(weight[:300].clone(), bias[:300].clone())
    known.weight[:3], known.bias[:3] = 100.0, -100.0  # marks, which are no words
    new = float(counts[300:].sum())
    found = add_rows(known, vectors, counts, special=3, unknown=2, rest=new / 3 - 1)
    assert torch.equal(found.weight[:300], known.weight)
    # <UNK> stood for four times as many words as it does now.
    shift = torch.zeros(300).index_fill(0, torch.tensor(2), math.log(4))
    torch.testing.assert_close(found.bias[:300] + shift, known.bias)
    for new, wanted in ((found.weight[300:], weight[300:]), (found.bias[300:], bias[300:])):
        assert (new - wanted).abs().mean() < 0.05 * (wanted - wanted.mean(dim=0)).abs().mean()


@pytest.mark.parametrize("words", [VOCABULARY, SCATTERED])
def test_the_vocabulary_grows_by_the_most_frequent_words(text: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    model = small_model(tmp_path / "model", words)
    ended = tuned(model, text, tmp_path / "out", softmax_words=20)
    before, after = numbers_in(ended.said)
    assert after < before
    saved = load_pretrained(tmp_path / "out" / "model")
    assert saved.vocabulary is not None
    assert saved.vocabulary[: len(words)] == words  # its own, in their order
    new = saved.vocabulary[len(words) :]
    assert len(new) == 9
    prepared = PreparedCorpus.open(tmp_path / "out" / "corpus")
    met = Counter(word for ids in prepared.train for word in prepared.lexicon.words(ids) if word not in words)
    assert sorted(met[word] for word in new) == sorted(met.values())[-9:]
    # Each row belongs to its word: the saved model has the perplexity that was told.
    corpus = [line.split() for line in text.read_text(encoding="utf-8").splitlines()]
    report = LanguageModel.from_pretrained(tmp_path / "out/model", device="cpu", tokenizer="whitespace").perplexity(
        corpus
    )
    assert report.mean == pytest.approx(after, rel=0.1)


def test_it_stops_where_the_text_has_no_more_words(text: Path, tmp_path: Path) -> None:
    tuned(small_model(tmp_path / "model"), text, tmp_path / "out", softmax_words=100_000, steps=2)
    saved = load_pretrained(tmp_path / "out" / "model").vocabulary
    assert saved is not None
    # All words of the training text, and "elsewhere", which the model knew before.
    assert set(saved) - set(text.read_text(encoding="utf-8").split()) == {"<S>", "</S>", "<UNK>", "elsewhere"}
    assert len(saved) > 60


def test_the_same_command_resumes_it(text: Path, tmp_path: Path) -> None:
    model = small_model(tmp_path / "model")
    settings: dict[str, Any] = {**QUICK, "softmax_words": 20}
    tuned(model, text, tmp_path / "a", **settings)
    command = runs.finetuning(model, text, output=tmp_path / "b", **settings)
    process = runs.start(command)
    runs.wait_for_step(tmp_path / "b", 25, process)
    process.kill()
    runs.end(process)
    assert runs.run_here(command).status == 0
    runs.assert_same_run(tmp_path / "a", tmp_path / "b")


def test_what_cannot_grow_is_refused(text: Path, tmp_path: Path) -> None:
    config = load_finetune_config(flags={"softmax_words": 20})
    plain = models.tiny().pretrained
    with pytest.raises(ConfigError, match="has none to add to"):
        Output.of(plain, config)
    words = ("<S>", "</S>", "<UNK>", *VOCABULARY[3:])
    layer = AdaptiveSoftmax(len(words), 6, cutoffs=(5,))
    softmax = AdaptiveTensors(len(words), 6, (5,), {n: t.detach() for n, t in layer.state_dict().items()})
    with pytest.raises(ConfigError, match="has an adaptive one, which cannot grow"):
        Output.of(replace(plain, vocabulary=words, softmax=softmax), config)
    command = runs.finetuning(
        small_model(tmp_path / "model"), text, output=tmp_path / "out", **{**QUICK, "softmax_words": 5}
    )
    ended = runs.run_here(command)
    assert (ended.status, ended.said.count("\n")) == (2, 1)
    assert "predicts 11 words; expected more (elmokit convert --softmax-words keeps fewer)" in ended.said
