"""`ElmoModule` in real Sentence Transformers: encode, save and load, train, and an MTEB task of SICK's pairs."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import models
from elmokit import Elmo
from elmokit.formats import read_lines

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
pytest.importorskip("sentence_transformers")

TEXTS = ["The cat sat.", "A dog ran away!", "", "One naïve 🙂 mat"]


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(models.tiny(seed=5).pretrained, device="cpu")


def sentence_model(elmo: Any, **options: Any) -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    from elmokit.integrations.sentence_transformers import ElmoModule

    module = ElmoModule(elmo, **options)
    return SentenceTransformer(modules=[module, Pooling(module.get_embedding_dimension())], device="cpu")


@pytest.mark.parametrize("layers", ["mix", "top", "concat:0,1"])
def test_sentences_have_the_encoders_vectors(elmo: Elmo, layers: str) -> None:
    model = sentence_model(elmo, layers=layers)
    expected = elmo.encode(TEXTS, layers=layers)
    assert_allclose(model.encode(TEXTS), expected, atol=1e-5)
    assert_allclose(model.encode(TEXTS * 9, batch_size=5), np.tile(expected, (9, 1)), atol=1e-5)
    assert model.get_embedding_dimension() == expected.shape[1]
    tokens = model.encode(TEXTS[:1], output_value="token_embeddings")[0]
    assert_allclose(np.asarray(tokens), elmo.encode_tokens(TEXTS[0], layers=layers), atol=1e-5)


def test_one_long_word_does_not_fill_the_memory(elmo: Elmo) -> None:
    from elmokit.integrations.sentence_transformers import ElmoModule

    module = ElmoModule(elmo, layers="top")
    features = module.preprocess(["a" * 100_000 + " b", "c"])
    assert features["input_ids"].shape == (2, 2, 1000)
    found = module(features)["token_embeddings"]
    assert_allclose(found[0], elmo.encode_tokens("a" * 100_000 + " b", layers="top"), atol=1e-6)


@pytest.mark.parametrize("fine_tune", [False, True])
def test_training_changes_the_mix_and_the_model_only_if_it_is_to(elmo: Elmo, fine_tune: bool, tmp_path: Path) -> None:
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

    model = sentence_model(elmo, fine_tune=fine_tune)
    before = model.encode(TEXTS)
    data = Dataset.from_dict(
        {"a": ["the cat", "a dog"] * 8, "b": ["a cat sat", "the mat"] * 8, "score": [1.0, 0.0] * 8}
    )
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "run"),
        max_steps=4,
        per_device_train_batch_size=4,
        learning_rate=0.05,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    kept = {name: values.clone() for name, values in elmo.pretrained.tensors.items()}
    SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=data, loss=CosineSimilarityLoss(model)
    ).train()
    names = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert any("bilm" in name for name in names) == fine_tune
    after = model.encode(TEXTS)
    assert not np.allclose(before, after, atol=1e-4)
    for name, values in elmo.pretrained.tensors.items():
        assert torch.equal(values, kept[name])
    model.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True, device="cpu")
    assert_allclose(again.encode(TEXTS), after, atol=1e-5)
    assert again[0].fine_tune == fine_tune
    again.save(str(tmp_path / "twice"))
    twice = SentenceTransformer(str(tmp_path / "twice"), trust_remote_code=True, device="cpu")
    assert_allclose(twice.encode(TEXTS), after, atol=1e-5)


def test_the_bundled_model_is_saved_by_name(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model = sentence_model(None, layers="average")
    model.save(str(tmp_path))
    assert not (tmp_path / "elmo").exists()
    again = SentenceTransformer(str(tmp_path), trust_remote_code=True, device="cpu")
    assert_allclose(again.encode(TEXTS), model.encode(TEXTS), atol=1e-5)


def test_mteb_scores_it_on_pairs_of_sick(shared: Path, tmp_path: Path) -> None:
    """A local task of SICK's trial pairs: MTEB's correlation is the one computed here from the vectors."""
    mteb = pytest.importorskip("mteb")
    from datasets import Dataset, DatasetDict
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata
    from scipy.stats import spearmanr

    rows = read_sick(shared)[:300]

    class LocalSick(AbsTaskSTS):  # type: ignore[misc]
        metadata = TaskMetadata(
            name="LocalSick",
            description="Relatedness of the sentence pairs of SICK, read from a file.",
            dataset={"path": "local/sick", "revision": "1"},
            type="STS",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="cosine_spearman",
        )
        min_score, max_score = 1, 5

        def load_data(self, **kwargs: Any) -> None:
            columns = {"sentence1": 0, "sentence2": 1, "score": 2}
            made = Dataset.from_dict({name: [row[k] for row in rows] for name, k in columns.items()})
            self.dataset, self.data_loaded = DatasetDict({"test": made}), True

    model = sentence_model(None, layers="average")
    found = mteb.evaluate(model, LocalSick(), cache=None)
    score = found.task_results[0].scores["test"][0]["cosine_spearman"]
    a, b = (model.encode([row[k] for row in rows], normalize_embeddings=True) for k in (0, 1))
    expected = spearmanr((a * b).sum(axis=1), [row[2] for row in rows]).statistic
    assert score == pytest.approx(expected, abs=1e-3)
    assert score > 0.3


def read_sick(shared: Path) -> list[tuple[str, str, float]]:
    """The two sentences and the relatedness of each trial pair."""
    file = shared / "eval/entail-sick/SICK_trial.txt.xz"
    if not file.is_file():
        pytest.skip(f"no {file}")
    table = csv.DictReader(read_lines(file), delimiter="\t", quoting=csv.QUOTE_NONE)
    return [(row["sentence_A"], row["sentence_B"], float(row["relatedness_score"])) for row in table]
