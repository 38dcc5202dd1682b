"""The tagger learns, repeats itself with a seed, keeps its best epoch, and does not see padding."""

import numpy as np
import pytest
import torch

from elmokit.errors import ConfigError, InputError
from elmokit.nn.mix import MixConfig
from elmokit.tasks.labels import Span, list_labels, write_tags
from elmokit.tasks.table import LayerTable
from elmokit.tasks.tagger import TaggerConfig, TaggerNetwork
from elmokit.tasks.train import (
    Epoch,
    TaggedTable,
    TrainingConfig,
    predict_tags,
    score_tagger,
    shuffled_batches,
    train_tagger,
)

LABELS = list_labels(["X"], "IOBES")
CONFIG = TaggerConfig(LABELS, width=4, hidden=8, dropout=0.1, mix=MixConfig(n_layers=2))
QUICK = TrainingConfig(epochs=12, batch_size=16, learning_rate=0.02, device="cpu")


def made_up(n: int, seed: int) -> TaggedTable:
    """A span of two words begins wherever the first number of layer 1 is positive: the second word must look left."""
    rng = np.random.default_rng(seed)
    lengths, tags = rng.integers(1, 9, n), []
    values = rng.normal(size=(lengths.sum(), 2, 4)).astype(np.float16)
    at = 0
    for length in lengths:
        spans, k = [], 0
        while k < length - 1:
            if values[at + k, 1, 0] > 0:
                spans.append(Span(k, k + 2, "X"))
                k += 1
            k += 1
        tags.append(write_tags(spans, int(length), scheme="IOBES"))
        at += length
    return TaggedTable(LayerTable(values, lengths, ("0", "1")), tags)


def test_it_learns_and_repeats_itself() -> None:
    train, dev = made_up(200, 1), made_up(60, 2)
    before = torch.random.get_rng_state()
    heard: list[Epoch] = []
    trained = train_tagger(CONFIG, train, dev, training=QUICK, told=heard.append)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert tuple(heard) == trained.epochs
    assert heard[-1].loss < 0.5 * heard[0].loss
    assert trained.best.score > 0.85
    assert score_tagger(trained.network, dev) == pytest.approx(trained.best.score)  # the best, not the last
    assert trained.network.mix.shares[1] > 0.6  # the layer that tells
    again = train_tagger(CONFIG, train, dev, training=QUICK)
    assert again.epochs == trained.epochs


def test_it_stops_when_the_score_stands_still_and_lowers_the_rate() -> None:
    train, dev = made_up(30, 1), made_up(10, 2)
    still = TrainingConfig(epochs=20, learning_rate=1e-12, patience=3, device="cpu")
    epochs = train_tagger(CONFIG, train, dev, training=still).epochs
    assert len(epochs) == 4
    assert [epoch.learning_rate for epoch in epochs] == [1e-12, 1e-12, 0.5e-12, 0.25e-12]


def test_padding_and_batch_change_nothing() -> None:
    data = made_up(12, 3)
    torch.manual_seed(0)
    network = TaggerNetwork(CONFIG).eval()
    together = network(data.layers.stack(range(12)))
    for k in range(12):
        alone = network(data.layers.stack([k]))
        torch.testing.assert_close(together[k, : alone.shape[1]], alone[0])
    one_by_one = predict_tags(network, data.layers, batch_size=1)
    assert predict_tags(network, data.layers, batch_size=5) == one_by_one


def test_an_empty_sentence_has_no_labels() -> None:
    table = LayerTable(np.zeros((2, 2, 4), dtype=np.float16), [0, 2, 0], ("0", "1"))
    torch.manual_seed(0)
    found = predict_tags(TaggerNetwork(CONFIG), table)
    assert [len(tags) for tags in found] == [0, 2, 0]
    assert [list(batch) for batch in shuffled_batches([0, 2, 0], 4, np.random.default_rng(0))] == [[1]]


def test_labels_without_a_scheme_are_scored_word_by_word() -> None:
    config = TaggerConfig(("A", "B"), width=4, scheme=None, hidden=4, mix=MixConfig(n_layers=2))
    torch.manual_seed(0)
    network = TaggerNetwork(config)
    assert network.crf.step_allowed.all()
    table = LayerTable(np.zeros((3, 2, 4), dtype=np.float16), [3], ("0", "1"))
    predicted = predict_tags(network, table)
    assert score_tagger(network, TaggedTable(table, predicted)) == 1.0


def test_every_sentence_is_in_one_batch() -> None:
    lengths = np.random.default_rng(0).integers(1, 30, 1000).tolist()
    batches = list(shuffled_batches(lengths, 8, np.random.default_rng(1)))
    assert sorted(k for batch in batches for k in batch) == list(range(1000))
    assert max(map(len, batches)) == 8
    padding = sum(len(b) * max(lengths[k] for k in b) for b in batches) / sum(lengths)
    assert padding < 1.2
    assert list(shuffled_batches(lengths, 8, np.random.default_rng(2))) != batches


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="'B-Y' is not among the tagger's: O, B-X, I-X"):
        CONFIG.ids(["O", "B-Y"])
    with pytest.raises(ConfigError, match="each once"):
        TaggerConfig(("O", "O"), width=4)
    with pytest.raises(InputError, match="one label for each word"):
        TaggedTable(made_up(3, 0).layers, [["O"]])
