"""Training: it learns, repeats itself, stops in time, keeps the best, and goes on as if it had never stopped."""

import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_tasks import SMALL, small_data, small_setup, tiny_elmo

from elmokit.errors import ConfigError, ElmokitError, InputError
from elmokit.tasks import feed
from elmokit.tasks.feed import shuffled_batches
from elmokit.tasks.run import CHECKPOINT, Listener, spaced, taken, train_task
from elmokit.tasks.setup import load_setup
from elmokit.tasks.tagging.network import TaggedExample
from elmokit.tasks.tagging.task import NER, TAGLM
from elmokit.tasks.train import Epoch, WeightAverage
from elmokit.text import Sentence


class StopHereError(Exception):
    """Ends a training in the middle."""


def outcome(epochs: tuple[Epoch, ...]) -> list[dict[str, Any]]:
    """All of it but how long it took."""
    return [{**asdict(epoch), "seconds": 0} for epoch in epochs]


def test_it_learns_and_repeats_itself(tmp_path: Path) -> None:
    train, dev = small_data(tmp_path)
    before = torch.random.get_rng_state()
    heard: list[Epoch] = []
    elmo = tiny_elmo()
    model = train_task(
        NER, small_setup(), train, dev, encoder=elmo, device="cpu", listener=Listener(epoch=heard.append)
    )
    assert torch.equal(torch.random.get_rng_state(), before)
    assert model.trained is not None
    assert tuple(heard) == model.trained.epochs
    assert heard[-1].loss < 0.5 * heard[0].loss
    assert model.trained.best.score > 0.9
    assert model.evaluate(dev)["F1"] == pytest.approx(model.trained.best.score)
    assert sum(model.mixes["input"]["shares"]) == pytest.approx(1.0)
    again = train_task(NER, small_setup(), train, dev, encoder=elmo, device="cpu")
    assert again.trained is not None
    assert outcome(again.trained.epochs) == outcome(model.trained.epochs)
    for a, b in zip(model.network.state_dict().values(), again.network.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    other = train_task(NER, small_setup(seed=2), train, dev, encoder=elmo, device="cpu")
    assert other.trained is not None
    assert outcome(other.trained.epochs) != outcome(model.trained.epochs)


@pytest.mark.parametrize("average", [0.0, 0.9])
@pytest.mark.parametrize("fine_tune", [False, True])
def test_stopped_and_gone_on_with_it_ends_the_same(tmp_path: Path, average: float, fine_tune: bool) -> None:
    """Stopped in the middle of each epoch in turn."""
    train, dev = small_data(tmp_path)
    setup = small_setup(average=average, fine_tune=fine_tune, epochs=3, learning_rate=0.01, max_train=20)
    elmo = tiny_elmo()
    whole = train_task(NER, setup, train, dev, encoder=elmo, device="cpu")
    folder = tmp_path / "run"
    for stop in (2, 5, 5):  # steps, three in an epoch: in the first epoch, then in the second, then in the third
        steps: list[int] = []

        def step(done: int, _: int, stop: int = stop, steps: list[int] = steps) -> None:
            steps.append(done)
            if len(steps) == stop:
                raise StopHereError

        with pytest.raises(StopHereError):
            train_task(NER, setup, train, dev, encoder=elmo, folder=folder, device="cpu", listener=Listener(step=step))
        assert (folder / CHECKPOINT).exists() == (stop > 2)
    model = train_task(NER, setup, train, dev, encoder=elmo, folder=folder, device="cpu")
    assert model.trained is not None
    assert whole.trained is not None
    assert outcome(model.trained.epochs) == outcome(whole.trained.epochs)
    for a, b in zip(whole.network.state_dict().values(), model.network.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert whole.encoder is not None
    assert model.encoder is not None
    assert whole.encoder.fingerprint == model.encoder.fingerprint
    assert (whole.encoder.fingerprint == elmo.fingerprint) == (not fine_tune)


def test_fine_tuned_predictions_are_those_of_training(tmp_path: Path) -> None:
    train, dev = small_data(tmp_path)
    setup = small_setup(fine_tune=True, fine_tune_rate=0.01, epochs=2, max_train=30)
    model = train_task(NER, setup, train, dev, encoder=tiny_elmo(), device="cpu")
    assert model.trained is not None
    assert model.evaluate(dev)["F1"] == pytest.approx(model.trained.best.score)


def test_it_stops_when_the_score_stands_still_and_lowers_the_rate(tmp_path: Path) -> None:
    train, dev = small_data(tmp_path)
    still = small_setup(elmo_at="none", epochs=20, learning_rate=1e-12, patience=3)
    model = train_task(NER, still, train, dev, device="cpu")
    assert model.trained is not None
    assert [epoch.learning_rate for epoch in model.trained.epochs] == [1e-12, 1e-12, 0.5e-12, 0.25e-12]
    assert model.trained.best.number == 1


def test_without_an_encoder_and_with_the_forerunner(tmp_path: Path) -> None:
    train, dev = small_data(tmp_path)
    plain = train_task(NER, small_setup(elmo_at="none", epochs=2), train, dev, device="cpu")
    assert plain.encoder is None
    assert not plain.mixes
    setup = load_setup(TAGLM, flags={**SMALL, "lstm_layers": 2, "epochs": 8, "decay": 1.0})
    model = train_task(TAGLM, setup, train, dev, encoder=tiny_elmo(), device="cpu")
    assert model.trained is not None
    assert model.trained.best.score > 0.8


def test_vectors_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    train, dev = small_data(tmp_path)
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("ann 1 2 3\nnew 4 5 6\nsees 7 8 9\n", encoding="utf-8")
    setup = small_setup(vectors=str(vectors), max_vectors=2, elmo_at="none", epochs=1)
    model = train_task(NER, setup, train, dev, device="cpu")
    assert model.reader.vocabulary.words == ("ann", "new")
    assert model.network.features.words is not None
    assert model.network.features.words.weight[2:].tolist() == [[1, 2, 3], [4, 5, 6]]
    trained = train_task(NER, setup.changed(train_vectors=True), train, dev, device="cpu")
    assert trained.network.features.words is not None
    assert trained.network.features.words.weight[2:].tolist() != [[1, 2, 3], [4, 5, 6]]


def test_layers_are_computed_once(tmp_path: Path) -> None:
    train, dev = small_data(tmp_path)
    elmo, counts = tiny_elmo(), []

    def told(done: int, total: int) -> None:
        counts.append((done, total))

    cache = tmp_path / "cache"
    setup = small_setup(epochs=1)
    train_task(NER, setup, train, dev, encoder=elmo, cache=cache, device="cpu", listener=Listener(embedding=told))
    distinct = {example.sentence.tokens for example in (*train, *dev)}
    assert counts[-1] == (sum(map(len, distinct)),) * 2
    counts.clear()
    train_task(NER, setup, train, dev, encoder=elmo, cache=cache, device="cpu", listener=Listener(embedding=told))
    assert not counts


def test_what_cannot_be_trained_is_refused(tmp_path: Path) -> None:
    train, dev = small_data(tmp_path)
    with pytest.raises(InputError, match="there is no encoder; give one, or elmo_at='none'"):
        train_task(NER, small_setup(), train, dev, device="cpu")
    with pytest.raises(ConfigError, match="fine_tune trains the encoder, but elmo_at is 'none'"):
        train_task(NER, small_setup(elmo_at="none", fine_tune=True), train, dev, device="cpu")
    with pytest.raises(InputError, match="60 examples to train on and 0 to score on"):
        train_task(NER, small_setup(elmo_at="none"), train, [], device="cpu")
    wild = small_setup(elmo_at="none", learning_rate=1e30, clip_norm=1e30)
    with pytest.raises(ElmokitError, match="the loss became"):
        train_task(NER, wild, train, dev, device="cpu")
    with pytest.raises(ConfigError, match="unknown field 'hiden'"):
        small_setup(hiden=3)
    with pytest.raises(ConfigError, match="epochs is 0"):
        small_setup(epochs=0)


def test_another_training_in_the_folder_is_refused(tmp_path: Path) -> None:
    train, dev = small_data(tmp_path)
    folder = tmp_path / "run"
    train_task(NER, small_setup(elmo_at="none", epochs=1), train, dev, folder=folder, device="cpu")
    with pytest.raises(ConfigError, match=r"other settings or data .*hidden: 8 there, 9 here"):
        train_task(NER, small_setup(elmo_at="none", epochs=1, hidden=9), train, dev, folder=folder, device="cpu")
    with pytest.raises(ConfigError, match=r"other settings or data .data"):
        train_task(NER, small_setup(elmo_at="none", epochs=1), train[:-1], dev, folder=folder, device="cpu")
    with taken(folder), pytest.raises(InputError, match="another process is training into it; wait for it"):
        train_task(NER, small_setup(elmo_at="none", epochs=1), train, dev, folder=folder, device="cpu")
    assert [path.name for path in folder.iterdir()] == [CHECKPOINT]


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    train, dev = small_data(tmp_path)
    path = tmp_path / "run" / CHECKPOINT

    def resume() -> None:
        train_task(NER, small_setup(elmo_at="none", epochs=1), train, dev, folder=path.parent, device="cpu")

    resume()
    whole = path.read_bytes()
    for damaged in (b"damaged", b"", whole[:-100], _flipped(whole, len(whole) // 3), _flipped(whole, len(whole) // 2)):
        path.write_bytes(damaged)
        with pytest.raises(ElmokitError, match=r"checkpoint\.pt: damaged .*; restore it from a copy, or start again"):
            resume()
    content = torch.load(io.BytesIO(whole), weights_only=True)
    for part in ("identity", "described", "epochs", "scale", "weights", "best", "optimizer"):
        torch.save({name: value for name, value in content.items() if name != part}, path)
        with pytest.raises(ElmokitError, match=f"its part '{part}' is missing"):
            resume()
    path.write_bytes(whole)
    resume()


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_every_example_is_in_one_batch() -> None:
    lengths = np.random.default_rng(0).integers(1, 30, 1000).tolist()
    batches = list(shuffled_batches(lengths, 8, np.random.default_rng(1)))
    assert sorted(k for batch in batches for k in batch) == list(range(1000))
    assert max(map(len, batches)) == 8
    padding = sum(len(b) * max(lengths[k] for k in b) for b in batches) / sum(lengths)
    assert padding < 1.2
    assert list(shuffled_batches(lengths, 8, np.random.default_rng(2))) != batches
    assert list(shuffled_batches([0, 2, 0], 4, np.random.default_rng(0))) == [[1]]


def test_predictions_of_long_texts_have_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, dev = small_data(tmp_path)
    model = train_task(NER, small_setup(epochs=1, elmo_at="none"), train, dev, device="cpu")
    examples = [TaggedExample(Sentence.of(["Ann"] * n)) for n in (3, 30, 1, 4, 0, 2, 30)]
    before = [found.tags for found in model.predict_examples(examples)]
    monkeypatch.setattr(feed, "PREDICT_TOKENS", 10)
    done: list[int] = []
    after = model.predict_examples(examples, told=lambda some, total: done.append(some))
    assert [found.tags for found in after] == before
    assert done == [3, 5, 6, 7]  # sentences of 0, 1 and 2 words; 3 and 4; 30; 30


def test_evenly_spaced() -> None:
    assert spaced(range(10), 5) == [0, 2, 4, 6, 8]  # type: ignore[type-var]
    assert spaced(range(3), 0) == range(3)  # type: ignore[type-var]
    assert spaced(range(3), 9) == range(3)  # type: ignore[type-var]


def test_the_average_of_weights() -> None:
    layer = torch.nn.Linear(1, 1, bias=False)
    average = WeightAverage(layer, 0.5)
    with average.in_place():  # before the first step: the weights themselves
        pass
    for value in (1.0, 2.0, 4.0):
        torch.nn.init.constant_(layer.weight, value)
        average.update()
    # From 1; then decay 2/11 (short at first), then 3/12
    second = 2 / 11 * 1 + 9 / 11 * 2
    expected = 3 / 12 * second + 9 / 12 * 4
    with average.in_place():
        assert float(layer.weight.detach()) == pytest.approx(expected)
    assert float(layer.weight.detach()) == 4.0
