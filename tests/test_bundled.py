"""The English model that comes with elmokit: there, light, and as good as the pages say."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from elmokit import Classifier, CoreferenceResolver, Elmo, RoleLabeller, Tagger
from elmokit.cli import app
from elmokit.lm import LanguageModel
from elmokit.weights import bundled_models, load_pretrained, save_pretrained
from elmokit.weights.load import BUNDLED

PAGE = Path(__file__).resolve().parents[1] / "docs" / "language-model.md"
EXAMPLE = re.compile(r'\$ elmokit predict "(.+)" --top 5\n.+\n((?:.+\n){5})')


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo.from_pretrained(device="cpu")


def test_it_is_there_and_light() -> None:
    assert bundled_models() == ["en", "en-large"]
    assert sum(path.stat().st_size for path in (BUNDLED / "en").iterdir()) < 20e6
    assert sum(path.stat().st_size for path in (BUNDLED / "en-large").iterdir()) < 38e6
    assert sum(path.stat().st_size for path in (BUNDLED / "tasks").rglob("*") if path.is_file()) < 16e6
    card = (BUNDLED / "en" / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\n")
    assert "cc-by-sa-4.0" in card


def test_its_vectors(elmo: Elmo) -> None:
    text = [["He", "sat", "on", "the", "bank", "of", "the", "river", "."]]
    (layers,) = elmo.encode_layers(text, dtype="float32")
    assert layers.shape == (3, 9, 512)
    bank = layers[:, 4].mean(axis=0)
    assert bank[:4] == pytest.approx([-0.70073, -0.16537, 0.24256, -0.22199], abs=2e-5)
    assert np.linalg.norm(bank) == pytest.approx(6.83242, abs=2e-5)
    assert elmo.pretrained.tokenizer == ("english", 1)
    (usual,) = elmo.encode_layers(text)  # int8, where the CPU has a library for it
    cosines = (usual * layers).sum(-1) / np.linalg.norm(usual, axis=-1) / np.linalg.norm(layers, axis=-1)
    assert cosines.min() > 0.99


def test_a_word_has_the_vector_of_its_context(elmo: Elmo) -> None:
    texts = [
        "He sat on the bank of the river.",
        "They walked along the bank of the stream.",
        "She paid it in at the bank.",
    ]
    river, stream, money = (
        layers[:, sentence.tokens.index("bank")]
        for sentence, layers in zip(map(elmo.tokenizer.tokenize, texts), elmo.encode_layers(texts), strict=True)
    )

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    assert cosine(river[0], money[0]) == pytest.approx(1, abs=1e-5)  # layer 0 knows the word alone
    for layer in (1, 2):
        assert cosine(river[layer], stream[layer]) > cosine(river[layer], money[layer]) + 0.05


def test_predictions_of_the_page() -> None:
    """Words as they stand there; probabilities to what other machines' arithmetic may differ."""
    lm = LanguageModel.from_pretrained(device="cpu")
    examples = EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
    assert len(examples) == 5
    for text, table in examples:
        found = lm.fill(text, n=5)
        rows = [line.split() for line in table.splitlines()]
        for column, candidates in enumerate((found.forward, found.backward, found.both)):
            shown = {row[2 * column]: float(row[2 * column + 1]) for row in rows}
            for candidate in candidates[:2]:
                assert shown[candidate.word] == pytest.approx(candidate.probability, abs=0.01)


def test_the_large_one() -> None:
    large = Elmo.from_pretrained("en-large", device="cpu")
    (layers,) = large.encode_layers(["He sat on the bank of the river."])
    assert layers.shape == (3, 9, 1024)
    best = LanguageModel(large.pretrained, device="cpu").fill("The capital of France is ___ .", n=1).both[0]
    assert best.word == "Paris"


@pytest.mark.parametrize("name", ["en", "en-large"])
def test_it_becomes_a_model_for_the_older_tools(name: str, tmp_path: Path) -> None:
    """HDF5 and options.json with the same weights."""
    stored = load_pretrained(name)
    save_pretrained(stored, tmp_path / "official", format="official", softmax=False)
    back = load_pretrained(tmp_path / "official")
    assert back.origin == "official"
    assert back.config == stored.config
    for part in ("tokens.projection.weight", "lstm.1.weight_h", "lstm.0.bias"):
        np.testing.assert_allclose(back.tensors[part].float(), stored.tensors[part].float(), atol=1e-6)


def test_ready_made_taggers() -> None:
    text = "Angela Merkel met Tim Cook in Berlin on Monday. The dogs barked."
    names, words, chunks = (
        Tagger.from_pretrained(name, device="cpu").predict(text) for name in ("ner", "pos", "chunk")
    )
    found = [(span.text, span.type) for sentence in names for span in sentence.spans]
    assert found == [("Angela Merkel", "PER"), ("Tim Cook", "PER"), ("Berlin", "LOC")]
    assert list(words[1].tags) == ["DET", "NOUN", "VERB", "PUNCT"]
    assert [(span.text, span.type) for span in chunks[1].spans] == [("The dogs", "NP"), ("barked", "VP")]
    for sentence in (*names, *chunks):
        assert all(text[span.start : span.end] == span.text for span in sentence.spans)


def test_names_as_people_write_them() -> None:
    tagger = Tagger.from_pretrained("ner", device="cpu")
    for text, names in {
        "Jean-Luc Picard lives in Stratford-upon-Avon.": ["Jean-Luc Picard", "Stratford-upon-Avon"],
        "i met angela merkel in new york": ["angela merkel", "new york"],
        "MERKEL MEETS COOK IN BERLIN": ["MERKEL", "COOK", "BERLIN"],
    }.items():
        assert [span.text for sentence in tagger.predict(text) for span in sentence.spans] == names


def test_other_ready_made_models() -> None:
    (sold,) = RoleLabeller.from_pretrained("roles", device="cpu").predict("Mary Smith sold her old car to Tim Cook.")
    found = [(span.type, span.text) for span in sold.arguments]
    assert found == [("ARG0", "Mary Smith"), ("ARG1", "her old car"), ("ARG2", "to Tim Cook")]
    resolved = CoreferenceResolver.from_pretrained("coref", device="cpu").predict("My sister left. She was tired.")
    assert [[mention.text for mention in cluster] for cluster in resolved.clusters] == [["My sister", "She"]]
    judge = Classifier.from_pretrained("sentiment", device="cpu")
    good, bad = judge.predict(["A warm, funny and wonderful film.", "A dull, stupid and boring film."])
    assert good.label in ("positive", "very positive")
    assert bad.label in ("negative", "very negative")


@pytest.mark.parametrize("name", [path.name for path in sorted((BUNDLED / "tasks").iterdir()) if path.is_dir()])
def test_the_cards_examples(name: str) -> None:
    """What a card says that its command prints; probabilities differ slightly between CPUs."""
    card = (BUNDLED / "tasks" / name / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"```bash no-run\n(elmokit apply .+)\n```", card)
    done = CliRunner().invoke(app, shlex.split(command)[1:], catch_exceptions=False)
    (shown,) = re.findall(r"```text\n((?:.*\n)+?)```", card)
    printed, expected = (re.sub(r"\b0\.\d+", "0.#", text.strip()) for text in (done.stdout, shown))
    assert printed == expected


def test_a_ready_made_tagger_starts_without_torch_s_compiler() -> None:
    """Its import takes longer than the rest together."""
    code = (
        "import sys; from elmokit import Tagger; Tagger.from_pretrained('ner', device='cpu').predict('Jane left.');"
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "False"
