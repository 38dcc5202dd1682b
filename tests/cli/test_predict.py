"""`elmokit predict` and `elmokit perplexity` from the command line, over a saved model."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from elmokit.cli.flags import Command
from elmokit.cli.perplexity import perplexity
from elmokit.cli.predict import predict
from elmokit.errors import ElmokitError, InputError, WeightsError
from elmokit.lm import LanguageModel
from elmokit.nn.bilm import BiLM, BiLMConfig, initialise
from elmokit.nn.char_cnn import TokenEncoderConfig
from elmokit.nn.lstm import LstmConfig
from elmokit.weights import save_pretrained
from elmokit.weights.pretrained import Pretrained, SoftmaxTensors, TokenizerSpec

WORDS = ("<S>", "</S>", "<UNK>", "the", ".", "river", "bank", "of", "on", "sat", "he", "[b]", "mat")


def tiny(**fields) -> Pretrained:
    tokens = TokenEncoderConfig(char_dim=4, max_characters=10, filters=((1, 4),), n_highway=1, projection_dim=4)
    bilm = BiLM(BiLMConfig(tokens=tokens, lstm=LstmConfig(cell_dim=6, projection_dim=4), n_layers=1))
    initialise(bilm, seed=1)
    softmax = SoftmaxTensors(torch.randn(len(WORDS), 4, generator=torch.Generator().manual_seed(2)), torch.zeros(13))
    return Pretrained.of(
        bilm, **{"vocabulary": WORDS, "softmax": softmax, "tokenizer": TokenizerSpec("english", 1), **fields}
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("lm") / "model"
    save_pretrained(tiny(), folder)
    return folder


def run(command, *args, stdin=None) -> str:
    app = typer.Typer()
    app.command(cls=Command)(command)
    result = CliRunner().invoke(app, [str(arg) for arg in args], input=stdin)
    if isinstance(result.exception, ElmokitError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_three_predictions_beside_each_other(model):
    text = "He sat on the ___ of the river ."
    found = LanguageModel.from_pretrained(model, device="cpu").fill(text, n=3)
    lines = run(predict, text, "--model", model, "--top", 3, "--device", "cpu").splitlines()
    assert [part for part in lines[0].split("  ") if part.strip()] == ["from the left", "from the right", "both sides"]
    for k in range(3):
        columns = (found.forward[k], found.backward[k], found.both[k])
        assert lines[k + 1].split() == [cell for word, p in columns for cell in (word, f"{p:.4f}")]
    assert len(lines) == 4


def test_predictions_as_json(model):
    text = "he sat on the ___."
    found = LanguageModel.from_pretrained(model, device="cpu").fill(text, n=100)
    shown = json.loads(run(predict, text, "-m", model, "--json", "--top", 100, "--device", "cpu"))
    assert shown["tokens"] == ["he", "sat", "on", "the", "___", "."]
    for side in ("forward", "backward", "both"):
        assert [(w["word"], w["probability"]) for w in shown[side]] == [tuple(c) for c in getattr(found, side)]
        assert sum(w["probability"] for w in shown[side]) == pytest.approx(1)


def test_without_a_blank_the_words_around_the_text(model):
    lm = LanguageModel.from_pretrained(model, device="cpu")
    shown = json.loads(run(predict, "on the", "-m", model, "--json", "--device", "cpu"))
    assert shown["next"] == [word._asdict() for word in lm.next_words("on the")]
    assert shown["previous"] == [word._asdict() for word in lm.previous_words("on the")]
    table = run(predict, "on the", "-m", model, "--device", "cpu", "--top", 100)
    assert "(end of sentence)" in table
    assert "(start of sentence)" in table
    assert "[b]" in table  # words are not read as markup
    assert "<UNK>" not in table
    assert "<UNK>" in run(predict, "on the", "-m", model, "--device", "cpu", "--top", 100, "--unknown")


def test_several_blanks_are_refused(model):
    with pytest.raises(InputError, match="found 2 blanks"):
        run(predict, "the ___ of the ___ .", "-m", model)


def test_a_model_without_output_layer(tmp_path):
    save_pretrained(tiny(softmax=None), tmp_path / "bare")
    with pytest.raises(WeightsError, match="holds no output layer"):
        run(predict, "the ___", "-m", tmp_path / "bare")


def test_perplexity_of_a_file_and_of_text(model, tmp_path):
    lm = LanguageModel.from_pretrained(model, device="cpu")
    expected = lm.perplexity(["he sat on the river bank .", "the zebra of the mat"])
    file = tmp_path / "text.txt"
    file.write_text("he sat on the river bank .\n\nthe zebra of the mat\n")
    shown = json.loads(run(perplexity, "--model", model, file, "--json"))
    assert shown["mean"] == pytest.approx(expected.mean)
    assert shown["forward"] == pytest.approx(expected.forward)
    assert (shown["sentences"], shown["words"], shown["predictions"], shown["unknown"]) == (2, 12, 14, 1)
    assert (
        json.loads(run(perplexity, "--model", model, "he sat on the river bank .", "the zebra of the mat", "--json"))
        == shown
    )
    table = run(perplexity, "--model", model, file)
    assert f"{expected.forward:.2f}" in table
    assert f"{expected.mean:.2f}" in table
    assert "7.14%" in table  # one <UNK> in 14 predictions


def test_perplexity_per_sentence(model):
    lm = LanguageModel.from_pretrained(model, device="cpu")
    texts = ["the river", "he sat on the river bank ."]  # not in the order of length
    shown = json.loads(run(perplexity, "--model", model, *texts, "--json", "--per-sentence"))
    for score, entry in zip(lm.score(texts), shown["per_sentence"], strict=True):
        assert tuple(entry["tokens"]) == score.tokens
        assert entry["forward"] == pytest.approx(score.forward, abs=1e-5)
        assert entry["perplexity"] == pytest.approx(score.perplexity, rel=1e-5)
    lines = run(perplexity, "--model", model, *texts, "--per-sentence").splitlines()
    assert lines[1].rstrip().endswith("the river")
    assert lines[2].rstrip().endswith("he sat on the river bank .")


def test_perplexity_of_paragraphs_and_with_carried_state(model, tmp_path):
    lm = LanguageModel.from_pretrained(model, device="cpu")
    file = tmp_path / "paragraphs.txt"
    file.write_text("He sat on the bank. The river of the bank.\nOn the mat. He sat.\n")
    texts = ["He sat on the bank.", "The river of the bank.", "On the mat.", "He sat."]
    assert json.loads(run(perplexity, "--model", model, file, "--json"))["mean"] == pytest.approx(
        lm.perplexity(texts).mean
    )
    whole = json.loads(run(perplexity, "--model", model, file, "--json", "--lines", "sentences"))
    assert (whole["sentences"], whole["lines"]) == (2, "sentences")
    carried = json.loads(run(perplexity, "--model", model, file, "--json", "--carried", "--streams", 2))
    assert carried["mean"] == pytest.approx(lm.perplexity(texts, carried=True, streams=2).mean)


def test_perplexity_of_a_chosen_field(model, tmp_path):
    file = tmp_path / "reviews.jsonl"
    file.write_text(json.dumps({"text": "the zebra of the mat", "body": "He sat on the bank."}) + "\n")
    lm = LanguageModel.from_pretrained(model, device="cpu")
    shown = json.loads(run(perplexity, "--model", model, file, "--json", "--field", "body"))
    assert shown["mean"] == pytest.approx(lm.perplexity(["He sat on the bank."]).mean)


def test_a_file_that_is_not_there_is_not_taken_for_text(model):
    with pytest.raises(InputError, match="no such file"):
        run(perplexity, "--model", model, "heldout.txt")


def test_one_sided_models_show_what_they_have(tmp_path):
    whole = tiny()
    tensors = {n: t[:1] if n.startswith("lstm.") else t for n, t in whole.tensors.items()}
    config = replace(whole.config, directions=("forward",))
    save_pretrained(replace(whole, config=config, tensors=tensors), tmp_path / "forward")
    shown = json.loads(run(predict, "on the ___", "-m", tmp_path / "forward", "--json"))
    assert shown["forward"]
    assert shown["backward"] is None
    table = run(predict, "on the ___", "-m", tmp_path / "forward")
    assert "from the right" not in table
    assert json.loads(run(perplexity, "--model", tmp_path / "forward", "on the mat", "--json"))["backward"] is None


def same(shown, expected):
    """The same words; their probabilities to what the size of a batch changes in torch's sums."""
    found = [json.loads(line) for line in shown.splitlines()]
    assert [record["tokens"] for record in found] == [record["tokens"] for record in expected]
    for record, other in zip(found, expected, strict=True):
        assert record.keys() == other.keys()
        for side in ("forward", "backward", "both"):
            a, b = ({row["word"]: row["probability"] for row in one.get(side) or ()} for one in (record, other))
            assert a == pytest.approx(b, abs=1e-6)


def test_files_and_standard_input_mean_what_they_mean_to_embed(model, tmp_path, monkeypatch):
    """0.1.0 predicted for the literal strings 'small.txt' and '-'."""
    file = tmp_path / "small.txt"
    file.write_text("He sat on the ___ . The river of the bank.\n\nOn the ___ he sat.\nthe river of\n")
    expected = [
        json.loads(run(predict, text, "-m", model, "--json", "--device", "cpu"))
        for text in ("He sat on the ___ .", "On the ___ he sat.", "the river of")
    ]
    given = ("-m", model, "--json", "--device", "cpu")
    same(run(predict, file, *given), expected)  # of a paragraph with a blank, the sentences that have one
    monkeypatch.chdir(tmp_path)
    same(run(predict, "small.txt", *given), expected)
    same(run(predict, "*.txt", *given), expected)
    same(run(predict, "-", *given, stdin=file.read_bytes()), expected)
    whole = [json.loads(line) for line in run(predict, file, *given, "--lines", "sentences").splitlines()]
    assert [len(record["tokens"]) for record in whole] == [12, 6, 3]  # a record for every line with words
    with pytest.raises(InputError, match=r"missing\.txt: no such file"):
        run(predict, "missing.txt", *given)


def test_several_sentences_are_named_above_their_tables(model):
    shown = run(predict, "on the ___", "the ___ of", "-m", model, "--device", "cpu", "--top", 1).splitlines()
    assert [line for line in shown if "___" in line] == ["on the ___", "the ___ of"]
