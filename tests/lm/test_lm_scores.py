"""Scores of the language model against brute force: every prefix and suffix run on its own, as defined."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_lm import CONFIG, SENTENCES, WORDS, after, number, tiny

import reference as ref
from elmokit.errors import InputError, WeightsError
from elmokit.lm import BLANK, LanguageModel, PerplexityReport, SentenceScore
from elmokit.lm.scores import parallel_streams
from elmokit.nn.bilm import BiLM
from elmokit.text import Sentence
from elmokit.weights.pretrained import Pretrained, SoftmaxTensors


def test_scores_are_those_of_every_prefix_and_suffix(lm):
    for sentence, score in zip(SENTENCES, lm.score(SENTENCES), strict=True):
        n = len(sentence)
        forward = [after(lm, sentence[:k], "forward")[number([*sentence, "</S>"][k])].item() for k in range(n + 1)]
        backward = [after(lm, sentence[k:], "backward")[number(["<S>", *sentence][k])].item() for k in range(n + 1)]
        assert score.tokens == tuple(sentence)
        assert score.forward == pytest.approx(forward, abs=3e-5)
        assert score.backward == pytest.approx(backward, abs=3e-5)
        assert score.forward_words == (*sentence, "</S>")
        assert score.backward_words == ("<S>", *sentence)
        assert score.forward_total == pytest.approx(sum(forward), abs=1e-4)
        assert score.backward_total == pytest.approx(sum(backward), abs=1e-4)
        assert score.unknown == tuple(word not in WORDS for word in sentence)
        assert score.backward_perplexity == pytest.approx(math.exp(-sum(backward) / (n + 1)), rel=1e-4)
        assert score.perplexity == pytest.approx(math.exp(-(sum(forward) + sum(backward)) / 2 / (n + 1)), rel=1e-4)


def test_equals_numpy_end_to_end():
    """From the official layout in NumPy, softmax included, to the package's score of the same weights."""
    rng = np.random.default_rng(0)
    options = {
        "lstm": {
            "dim": 7,
            "projection_dim": 5,
            "n_layers": 2,
            "cell_clip": 3,
            "proj_clip": 3,
            "use_skip_connections": True,
        },
        "char_cnn": {
            "activation": "relu",
            "embedding": {"dim": 4},
            "filters": [[1, 4], [2, 6]],
            "max_characters_per_token": 10,
            "n_highway": 1,
        },
        "n_tokens_vocab": len(WORDS),
    }
    weights = ref.random_official(rng, options, softmax=True)
    model = LanguageModel(from_official(weights), device="cpu")
    for sentence, score in zip(SENTENCES, model.score(SENTENCES), strict=True):
        layers, _ = ref.embed(weights, options, sentence)
        forward, backward = np.split(layers[-1], 2, axis=-1)  # (T, P) each
        ids = np.array([number(word) for word in ("<S>", *sentence, "</S>")])

        def logs(hidden):
            scores = hidden @ weights["softmax/W"].T.astype(np.float64) + weights["softmax/b"]
            return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))

        at = np.arange(len(sentence) + 1)
        np.testing.assert_allclose(score.forward, logs(forward[:-1])[at, ids[1:]], atol=1e-5)
        np.testing.assert_allclose(score.backward, logs(backward[1:])[at, ids[:-1]], atol=1e-5)


def from_official(weights: dict[str, np.ndarray]) -> Pretrained:
    """The official layout written out by hand into `CONFIG`'s names."""
    bilm = BiLM(CONFIG)
    tensors = dict(bilm.state_dict())

    def put(name: str, value: np.ndarray) -> None:
        assert tensors[name].shape == value.shape, name
        tensors[name] = torch.from_numpy(np.ascontiguousarray(value))

    put("tokens.characters.weight", np.concatenate([np.zeros((1, 4), np.float32), weights["char_embed"]]))
    for i in range(2):
        put(f"tokens.convolutions.{i}.weight", weights[f"CNN/W_cnn_{i}"][0].transpose(2, 1, 0))
        put(f"tokens.convolutions.{i}.bias", weights[f"CNN/b_cnn_{i}"])
    for ours, theirs in (("gate", "carry"), ("transform", "transform")):
        put(f"tokens.highways.0.{ours}.weight", weights[f"CNN_high_0/W_{theirs}"].T)
        put(f"tokens.highways.0.{ours}.bias", weights[f"CNN_high_0/b_{theirs}"])
    put("tokens.projection.weight", weights["CNN_proj/W_proj"].T)
    put("tokens.projection.bias", weights["CNN_proj/b_proj"])
    for layer in range(2):
        cells = [f"RNN_{d}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/" for d in (0, 1)]
        put(f"lstm.{layer}.weight_x", np.stack([weights[c + "W_0"][:5].T for c in cells]))
        put(f"lstm.{layer}.weight_h", np.stack([weights[c + "W_0"][5:].T for c in cells]))
        put(f"lstm.{layer}.bias", np.stack([weights[c + "B"] for c in cells]))
        put(f"lstm.{layer}.projection", np.stack([weights[c + "W_P_0"].T for c in cells]))
    softmax = SoftmaxTensors(torch.from_numpy(weights["softmax/W"]), torch.from_numpy(weights["softmax/b"]))
    return Pretrained(CONFIG, tensors, vocabulary=WORDS, softmax=softmax)


@given(
    st.lists(st.lists(st.sampled_from([*WORDS[3:], "zebra"]), max_size=7), min_size=1, max_size=6), st.integers(1, 40)
)
def test_batching_never_changes_a_score(sentences, batch_tokens):
    model = LanguageModel(tiny(), device="cpu")
    together = model.score(sentences, batch_tokens=batch_tokens)
    for sentence, score in zip(sentences, together, strict=True):
        (alone,) = model.score([sentence])
        assert score.forward == pytest.approx(alone.forward, abs=3e-5)
        assert score.backward == pytest.approx(alone.backward, abs=3e-5)


def test_text_and_tokens_are_the_same(lm):
    one = lm.score("the cat sat .")
    assert isinstance(one, SentenceScore)
    assert [one] == lm.score(["the cat sat ."]) == lm.score([["the", "cat", "sat", "."]])


def test_perplexity_is_the_mean_over_predictions(lm, tmp_path):
    scores = [score for score in lm.score(SENTENCES) if score.tokens]
    report = lm.perplexity(SENTENCES)
    count = sum(len(score.tokens) + 1 for score in scores)
    losses = [
        -sum(score.forward_total for score in scores) / count,
        -sum(score.backward_total for score in scores) / count,
    ]
    assert report.forward == pytest.approx(math.exp(losses[0]), rel=1e-5)
    assert report.backward == pytest.approx(math.exp(losses[1]), rel=1e-5)
    assert report.mean == pytest.approx(math.exp(sum(losses) / 2), rel=1e-5)
    assert (report.sentences, report.words, report.predictions, report.unknown) == (3, 14, 17, 1)
    assert report.unknown_share == pytest.approx(1 / 17)
    file = tmp_path / "text.txt"
    file.write_text("\n".join(map(" ".join, SENTENCES)) + "\n\n")
    assert lm.perplexity(file) == lm.perplexity(SENTENCES)


def test_perplexity_of_nothing(lm):
    with pytest.raises(InputError, match="no sentences"):
        lm.perplexity([[]])
    with pytest.raises(InputError, match="no sentences"):
        PerplexityReport.of([])


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_carried_state_equals_one_long_run(lm, direction):
    """Sentences one after another, written out as a single sequence in the order this direction reads it."""
    sentences = [sentence for sentence in SENTENCES if sentence]
    codec, bilm = lm.runner.codec, lm.runner.bilm
    rows, words = [], []
    for sentence in sentences:
        turn = 1 if direction == "forward" else -1
        rows += [codec.begin, *codec.encode(sentence), codec.end][::turn]
        words += ["<S>", *sentence, "</S>"][::turn]
    vectors = bilm.tokens(torch.from_numpy(np.stack(rows)))  # (N, P)
    x = vectors.expand(2, -1, -1)
    layers, _ = bilm.run(x, (1,) * len(rows), bilm.zero_state(1, like=x))
    weight, bias = lm.pretrained.softmax
    hidden = layers[-1][lm.directions.index(direction)]
    logs = torch.log_softmax(hidden @ weight.T + bias, dim=1)
    expected = [
        logs[k, number(words[k + 1])].item()
        for k in range(len(words) - 1)
        if words[k] != ("</S>" if direction == "forward" else "<S>")
    ]
    found: list[float] = []
    for position, score in lm.scores(sentences, carried=True):
        assert score.tokens == tuple(sentences[position])
        found += score.forward if direction == "forward" else score.backward[::-1]
    assert found == pytest.approx(expected, abs=3e-5)
    apart = [p for s in lm.score(sentences) for p in (s.forward if direction == "forward" else s.backward[::-1])]
    assert np.abs(np.array(apart) - found).max() > 1e-3  # the state does matter


def test_parallel_streams_each_equal_their_own_run(lm):
    sentences = [sentence for sentence in SENTENCES if sentence] * 3 + [["cat"]]  # 10 in 3 streams: 4, 3, 3
    together = dict(lm.scores(sentences, carried=True, streams=3))
    for start, end in ((0, 4), (4, 7), (7, 10)):
        for k, (_, alone) in enumerate(lm.scores(sentences[start:end], carried=True)):
            assert together[start + k].forward == pytest.approx(alone.forward, abs=3e-5)
            assert together[start + k].backward == pytest.approx(alone.backward, abs=3e-5)
    report = lm.perplexity(sentences, carried=True, streams=3)
    assert report.mean == pytest.approx(PerplexityReport.of(together.values()).mean)


@given(st.integers(0, 20), st.integers(1, 6))
def test_streams_are_contiguous_and_shrink_from_the_back(count, streams):
    batches = list(parallel_streams([Sentence.of([str(k)]) for k in range(count)], streams))
    assert sorted(position for batch in batches for position, _ in batch) == list(range(count))
    for before, now in pairwise(batches):
        assert len(now) <= len(before)
        assert [p for p, _ in now] == [p + 1 for p, _ in before[: len(now)]]


@pytest.mark.parametrize(("direction", "other"), [("forward", "backward"), ("backward", "forward")])
def test_one_sided_models(lm, direction, other):
    whole = tiny()
    r = whole.config.directions.index(direction)
    tensors = {n: t[r : r + 1] if n.startswith("lstm.") else t for n, t in whole.tensors.items()}
    config = replace(whole.config, directions=(direction,))
    model = LanguageModel(replace(whole, config=config, tensors=tensors), device="cpu")
    for mine, both in zip(model.score(SENTENCES), lm.score(SENTENCES), strict=True):
        assert getattr(mine, direction) == pytest.approx(getattr(both, direction), abs=3e-5)
        assert getattr(mine, other) is None
        assert mine.perplexity == pytest.approx(getattr(both, f"{direction}_perplexity"), rel=1e-4)
    report = model.perplexity(SENTENCES)
    assert getattr(report, other) is None
    assert report.mean == pytest.approx(getattr(report, direction))
    filled = model.fill(["the", BLANK, "sat"])
    assert getattr(filled, direction) is not None
    assert getattr(filled, other) is None
    assert filled.both is None
    assert model.sample(["a"], direction=direction, n_words=3, seed=0).written
    with pytest.raises(InputError, match=f"needs a {other} language model"):
        model.sample(["a"], direction=other)
    with pytest.raises(InputError, match=f"reads {direction} only"):
        model.next_words(["a"]) if direction == "backward" else model.previous_words(["a"])


def test_missing_output_layer():
    with pytest.raises(WeightsError, match=r"holds no output layer.*elmokit finetune"):
        LanguageModel(tiny(softmax=None), device="cpu")
    with pytest.raises(WeightsError, match="no vocabulary"):
        LanguageModel(tiny(vocabulary=None), device="cpu")
    with pytest.raises(WeightsError, match="do not fit a vocabulary of 14"):
        LanguageModel(tiny(vocabulary=WORDS[:-1]), device="cpu")
    with pytest.raises(WeightsError, match="lacks <UNK>"):
        LanguageModel(tiny(vocabulary=tuple(word.replace("<UNK>", "unk") for word in WORDS)), device="cpu")


def test_lower_precision_runs(lm):
    half = LanguageModel(tiny(), device="cpu", dtype="bfloat16")
    assert half.perplexity(SENTENCES).mean == pytest.approx(lm.perplexity(SENTENCES).mean, rel=0.1)
    assert half.sample(["a"], n_words=3, seed=0).tokens[0] == "a"


def test_from_a_saved_model(lm, tmp_path: Path):
    from elmokit.weights import save_pretrained

    save_pretrained(tiny(), tmp_path / "model")
    loaded = LanguageModel.from_pretrained(tmp_path / "model", device="cpu")
    for found, score in zip(loaded.score(SENTENCES), lm.score(SENTENCES), strict=True):
        assert (found.tokens, found.unknown) == (score.tokens, score.unknown)
        assert found.forward == pytest.approx(score.forward, rel=1e-5)  # sums depend on how a mapped file lies
        assert found.backward == pytest.approx(score.backward, rel=1e-5)
    assert loaded.vocabulary == WORDS
