"""The components in real spaCy pipelines, found by their entry points."""

import importlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models
from elmokit import Elmo
from elmokit.errors import ElmokitError, InputError, MissingExtraError, WeightsError
from elmokit.tasks.run import train_task
from elmokit.tasks.setup import load_setup
from elmokit.tasks.tagging.task import NER, POS, TaggedExample, Tagging
from elmokit.text import Sentence

spacy = pytest.importorskip("spacy")

TEXTS = ["The cat sat on the mat.", "Ann sees New York.\n\nBob sits. The end", "", " \n ", "One more, isn't it?"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model in a folder."""
    place = tmp_path_factory.mktemp("spacy") / "model"
    Elmo(models.tiny(seed=3).pretrained).save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def elmo(folder: Path) -> Elmo:
    return Elmo.from_pretrained(folder, device="cpu")


def pipeline(folder: Path, **config: Any) -> Any:
    nlp = spacy.blank("en")
    nlp.add_pipe("elmokit", config={"model": str(folder), "device": "cpu", **config})
    return nlp


def test_a_fresh_process_finds_the_factories_without_importing_elmokit() -> None:
    code = (
        "import spacy; nlp = spacy.blank('en'); nlp.add_pipe('elmokit'); doc = nlp('It is found.');"
        "print(doc.tensor.shape, doc._.elmo.shape, nlp.has_factory('elmokit_ner'), nlp.has_factory('elmokit_pos'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "(4, 512) (3, 4, 512) True True", done.stderr


def test_vectors_belong_to_spacys_own_tokens(folder: Path, elmo: Elmo) -> None:
    doc = pipeline(folder, layers="top")("I can't see it.")
    tokens = [token.text for token in doc]
    assert tokens == ["I", "ca", "n't", "see", "it", "."]
    expected = elmo.encode_layers([tokens])[0]
    np.testing.assert_allclose(doc._.elmo, expected, atol=1e-5)
    np.testing.assert_allclose(doc.tensor, expected[-1], atol=1e-5)
    assert doc.tensor.dtype == np.float32


def test_white_space_is_not_shown_to_the_model(folder: Path, elmo: Elmo) -> None:
    doc = pipeline(folder)("The cat  sat")
    assert [token.is_space for token in doc] == [False, False, True, False]
    np.testing.assert_allclose(doc.tensor[[0, 1, 3]], elmo.encode_tokens([["The", "cat", "sat"]])[0], atol=1e-5)
    assert not doc.tensor[2].any()
    assert not doc[2].has_vector


def test_sentences_are_the_pipelines_or_the_tokenizers(folder: Path, elmo: Elmo) -> None:
    text = "The cat sat. The mat sat"
    one, two = ["The", "cat", "sat", "."], ["The", "mat", "sat"]
    apart = np.concatenate(elmo.encode_tokens([one, two]))
    together = elmo.encode_tokens([[*one, *two]])[0]
    assert not np.allclose(apart, together, atol=1e-4)
    nlp = pipeline(folder)
    np.testing.assert_allclose(nlp(text).tensor, apart, atol=1e-5)
    doc = nlp.make_doc(text)
    for token in doc:
        token.is_sent_start = token.i == 0
    np.testing.assert_allclose(nlp.get_pipe("elmokit")(doc).tensor, together, atol=1e-5)
    nlp.add_pipe("sentencizer", first=True)
    np.testing.assert_allclose(nlp(text).tensor, apart, atol=1e-5)


def test_hooks_win_over_the_vectors_of_the_pipeline(folder: Path) -> None:
    nlp = pipeline(folder)
    nlp.vocab.set_vector("cat", np.ones(5, dtype=np.float32))
    doc = nlp("The cat sat on the mat.")
    cat, mat = doc[1], doc[5]
    width = doc.tensor.shape[1]
    np.testing.assert_array_equal(cat.vector, doc.tensor[1])
    np.testing.assert_allclose(doc[1:3].vector, doc.tensor[1:3].mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(doc.vector, doc.tensor.mean(axis=0), atol=1e-6)
    assert cat.vector.shape == doc[1:3].vector.shape == doc.vector.shape == (width,)
    cosine = np.dot(cat.vector, mat.vector) / np.linalg.norm(cat.vector) / np.linalg.norm(mat.vector)
    assert cat.similarity(mat) == pytest.approx(cosine, abs=1e-6)
    assert doc.similarity(doc[1:3]) == pytest.approx(doc[1:3].similarity(doc), abs=1e-6)
    assert doc.similarity(doc) == pytest.approx(1, abs=1e-6)
    assert cat.vector_norm == pytest.approx(np.linalg.norm(cat.vector), abs=1e-5)
    assert doc.vector_norm == pytest.approx(np.linalg.norm(doc.vector), abs=1e-5)
    assert nlp("").similarity(doc) == 0


def test_pipe_runs_the_model_over_many_docs_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nlp = pipeline(folder)
    single = [nlp(text) for text in TEXTS * 4]
    encoder = nlp.get_pipe("elmokit").encoder
    calls: list[int] = []
    real = type(encoder).encode_layers

    def counted(self: Any, sentences: Any, **options: Any) -> Any:
        calls.append(len(sentences))
        return real(self, sentences, **options)

    monkeypatch.setattr(type(encoder), "encode_layers", counted)
    batched = list(nlp.pipe(TEXTS * 4, batch_size=10))
    assert len(calls) == 2
    for one, other in zip(single, batched, strict=True):
        assert one.text == other.text
        np.testing.assert_allclose(one.tensor, other.tensor, atol=1e-5)
        np.testing.assert_allclose(one._.elmo, other._.elmo, atol=1e-5)


def test_several_processes(folder: Path) -> None:
    from elmokit.integrations.spacy import set_hooks

    nlp = pipeline(folder)
    nlp.vocab.set_vector("cat", np.ones(5, dtype=np.float32))
    expected = [nlp(text) for text in TEXTS * 2]
    found = list(nlp.pipe(TEXTS * 2, n_process=2, batch_size=3))
    for one, other in zip(expected, found, strict=True):
        assert one.text == other.text
        np.testing.assert_allclose(one.tensor, other.tensor, atol=1e-5)
        np.testing.assert_allclose(one._.elmo, other._.elmo, atol=1e-5)
    np.testing.assert_array_equal(set_hooks(found[0])[1].vector, found[0].tensor[1])


@pytest.mark.filterwarnings("ignore:.*W109.*:UserWarning")
def test_docs_come_back_from_bytes(folder: Path) -> None:
    from spacy.tokens import Doc, DocBin

    from elmokit.integrations.spacy import set_hooks

    nlp = pipeline(folder)
    doc = nlp(TEXTS[0])
    back = set_hooks(Doc(nlp.vocab).from_bytes(doc.to_bytes()))
    np.testing.assert_array_equal(back.tensor, doc.tensor)
    np.testing.assert_array_equal(back._.elmo, doc._.elmo)
    np.testing.assert_array_equal(back[2].vector, doc[2].vector)
    stored = DocBin(docs=[doc], store_user_data=True).to_bytes()
    (back,) = DocBin().from_bytes(stored).get_docs(nlp.vocab)
    assert not back.tensor.size, "the page says so"
    np.testing.assert_array_equal(back._.elmo, doc._.elmo)


def test_a_saved_pipeline_holds_its_model(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copied"
    Elmo.from_pretrained(folder).save_pretrained(copy)
    nlp = pipeline(copy, layers="concat:0,1")
    expected = nlp(TEXTS[0]).tensor
    nlp.to_disk(tmp_path / "saved")
    data, config = nlp.to_bytes(), nlp.config
    again = spacy.load(tmp_path / "saved")
    np.testing.assert_allclose(again(TEXTS[0]).tensor, expected, atol=1e-5)
    assert again.get_pipe("elmokit").layers == "concat:0,1"
    from_bytes = spacy.blank("en").from_config(config).from_bytes(data)
    np.testing.assert_allclose(from_bytes(TEXTS[0]).tensor, expected, atol=1e-5)


def test_a_saved_pipeline_needs_only_its_own_folder(folder: Path, tmp_path: Path) -> None:
    """The configuration names a folder that is gone by then."""
    copy = tmp_path / "copied"
    shutil.copytree(folder, copy)
    pipeline(copy).to_disk(tmp_path / "saved")
    shutil.rmtree(copy)
    code = f"import spacy; print(spacy.load({str(tmp_path / 'saved')!r})('Two words').tensor.shape)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "(2, 12)", done.stderr


def test_the_bundled_model_is_saved_by_name_and_checked(tmp_path: Path) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("elmokit", config={"device": "cpu", "keep_layers": False})
    nlp.to_disk(tmp_path)
    assert not (tmp_path / "elmokit" / "model").exists()
    doc = spacy.load(tmp_path)("Here.")
    assert doc.tensor.shape == (2, 512)
    assert doc._.elmo is None
    stated = tmp_path / "elmokit" / "elmokit.json"
    stated.write_text(stated.read_text().replace('"fingerprint":"', '"fingerprint":"0'))
    with pytest.raises(WeightsError, match="saved with another en"):
        spacy.load(tmp_path)


def test_a_pipeline_is_trained_around_it(folder: Path) -> None:
    """A classifier of spaCy's own learns while the component stands in the pipeline, and its doc has our vectors."""
    from spacy.training import Example

    nlp = pipeline(folder)
    labels = nlp.add_pipe("textcat")
    for label in ("ANIMAL", "PLACE"):
        labels.add_label(label)
    data = [("the cat sat", "ANIMAL"), ("New York", "PLACE"), ("a cat", "ANIMAL"), ("York and Delhi", "PLACE")]
    examples = [
        Example.from_dict(nlp.make_doc(text), {"cats": {label: float(label == right) for label in labels.labels}})
        for text, right in data
    ]
    nlp.initialize(lambda: examples)
    for _ in range(20):
        nlp.update(examples)
    doc = nlp("the cat sat")
    assert max(doc.cats, key=doc.cats.get) == "ANIMAL"
    np.testing.assert_array_equal(doc[1].vector, doc.tensor[1])


def test_wrong_layers_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="keep the layers apart"):
        pipeline(folder, layers="all")
    with pytest.raises(ElmokitError, match="9"):
        pipeline(folder, layers="9")("One.")


def examples_of(task: Tagging) -> list[TaggedExample]:
    """Sentences in which capitals are names: those of two words places, the others persons."""
    rng = np.random.default_rng(1)
    parts = [("Ann",), ("Bob",), ("New", "York"), ("New", "Delhi"), ("sees",), ("the",), ("cat",), ("and",)]
    labels = {1: ["S-PER"], 2: ["B-LOC", "E-LOC"]}
    made = []
    for _ in range(80):
        chosen = [parts[k] for k in rng.integers(0, len(parts), rng.integers(2, 6))]
        words = [word for part in chosen for word in part]
        if task is POS:
            made.append(TaggedExample(Sentence.of(words), tuple("PROPN" if w[0].isupper() else "X" for w in words)))
        else:
            tags = [tag for part in chosen for tag in (labels[len(part)] if part[0][0].isupper() else ["O"])]
            made.append(TaggedExample(Sentence.of(words), tuple(tags), "IOBES"))
    return made


@pytest.fixture(scope="module")
def taggers(tmp_path_factory: pytest.TempPathFactory, elmo: Elmo) -> dict[str, Path]:
    """Tiny models of entities and of parts of speech, trained here."""
    place, made = tmp_path_factory.mktemp("taggers"), {}
    small = {"word_dim": 8, "char_dim": 4, "char_filters": "2:8", "hidden": 8, "lstm_layers": 1, "dropout": 0.1}
    for task in (NER, POS):
        setup = load_setup(task, flags={**small, "batch_size": 8, "learning_rate": 0.02, "epochs": 6})
        examples = examples_of(task)
        made[task.name] = train_task(task, setup, examples, examples, encoder=elmo, device="cpu").save(
            place / task.name
        )
    return made


def task_pipeline(taggers: dict[str, Path]) -> Any:
    nlp = spacy.blank("en")
    nlp.add_pipe("elmokit_ner", config={"model": str(taggers["ner"]), "device": "cpu"})
    nlp.add_pipe("elmokit_pos", config={"model": str(taggers["pos"]), "device": "cpu"})
    return nlp


def test_entities_and_parts_of_speech(taggers: dict[str, Path]) -> None:
    nlp = task_pipeline(taggers)
    docs = list(nlp.pipe(["Ann sees  New York and the cat", "", "the cat sees New Delhi"]))
    assert [(ent.text, ent.label_) for ent in docs[0].ents] == [("Ann", "PER"), ("New York", "LOC")]
    assert [token.pos_ for token in docs[0]] == ["PROPN", "X", "SPACE", "PROPN", "PROPN", "X", "X", "X"]
    assert [(ent.start, ent.end, ent.label_) for ent in docs[2].ents] == [(3, 5, "LOC")]
    assert nlp("Ann")[0].ent_type_ == "PER"


def test_entities_that_were_there_stay_where_they_do_not_overlap(taggers: dict[str, Path]) -> None:
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "ANIMAL", "pattern": "cat"}, {"label": "CITY", "pattern": "York"}])
    nlp.add_pipe("elmokit_ner", config={"model": str(taggers["ner"]), "device": "cpu"})
    doc = nlp("Ann sees New York and the cat")
    assert [(ent.text, ent.label_) for ent in doc.ents] == [("Ann", "PER"), ("New York", "LOC"), ("cat", "ANIMAL")]


def test_a_saved_pipeline_holds_its_taggers(taggers: dict[str, Path], tmp_path: Path) -> None:
    nlp = task_pipeline(taggers)
    nlp.to_disk(tmp_path / "saved")
    again = spacy.load(tmp_path / "saved")
    assert [ent.label_ for ent in again("Ann sees New York").ents] == ["PER", "LOC"]
    back = spacy.blank("en").from_config(nlp.config).from_bytes(nlp.to_bytes())
    assert [token.pos_ for token in back("Ann sees")] == ["PROPN", "X"]
    assert (tmp_path / "saved/elmokit_ner/model/encoder").is_dir()


def test_what_a_task_component_needs_is_said(taggers: dict[str, Path]) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("elmokit_ner")
    with pytest.raises(InputError, match="has no model; add it with config"):
        nlp("Ann")
    other = spacy.blank("en")
    other.add_pipe("elmokit_ner", config={"model": str(taggers["pos"]), "device": "cpu"})
    with pytest.raises(InputError, match="labels words, not spans"):
        other("Ann")


def test_without_spacy_the_line_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "spacy" or name.startswith("spacy.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "elmokit.integrations.spacy", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'elmokit\[spacy\]'"):
        importlib.import_module("elmokit.integrations.spacy")
