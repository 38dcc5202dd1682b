"""Flags mean the same in every command, and their old spellings still work, with a note."""

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from elmokit.cli import GROUPS, app
from elmokit.cli.flags import Command, OldSpelling, _modernise, old_spellings, with_fields
from elmokit.config import combine, setting

Cli = Callable[..., Any]
TEXT = "He sat on the bank. It was cold.\nThe bank was closed. He ran to the bank.\n"


def commands() -> dict[str, Any]:
    """Every command, with those of one task for `train` and `ablate`."""
    root = typer.main.get_command(app)
    context = root.make_context("elmokit", ["--version"], resilient_parsing=True)
    found = {name: root.get_command(context, name) for group in GROUPS.values() for name in group}  # type: ignore[attr-defined]
    for name in ("train", "ablate"):
        found[name] = found[name].get_command(context, "ner")
    return found


def options(command: Any) -> dict[str, Any]:
    return {flag: parameter for parameter in command.params for flag in parameter.opts if flag.startswith("-")}


def test_flags_are_in_lower_case() -> None:
    """Some versions of typer take a flag's name from its metavar if that is the same in capitals."""
    long = {flag for command in commands().values() for flag in options(command) if flag.startswith("--")}
    assert long == {flag.lower() for flag in long}
    assert {"--format", "--address"} <= long


class TestOneMeaning:
    def test_m_is_the_encoder(self) -> None:
        having = {name: options(command) for name, command in commands().items()}
        without = {name for name, flags in having.items() if "--model" not in flags}
        # These take the model as their argument, make one, or have AllenNLP's flags.
        making = {"pretrain", "elmo", "sample-text"}
        assert without == {"info", "convert", "export", "mixes", "verify", "models", "align"} | making
        for name, flags in having.items():
            assert ("-m" in flags) == ("--model" in flags), name
            assert "--encoder" not in flags, name

    def test_lines_are_sentences_or_paragraphs(self) -> None:
        having = {name: options(command).get("--lines") for name, command in commands().items()}
        found = {name: flag for name, flag in having.items() if flag is not None}
        reading = {"embed", "predict", "perplexity", "pretrain", "finetune", "tokenize"}
        assert set(found) == reading | {"index", "senses", "drift", "align"}
        for name, flag in found.items():
            assert flag.metavar == "sentences|paragraphs", name
            usual = "sentences" if name == "embed" else "paragraphs"
            assert flag.default == usual or f"[default: {usual}]" in flag.help, name

    def test_json_is_a_switch(self) -> None:
        having = {name: options(command).get("--json") for name, command in commands().items()}
        found = {name: flag for name, flag in having.items() if flag is not None}
        shows = {
            "embed",
            "compare",
            "predict",
            "perplexity",
            "info",
            "evaluate",
            "apply",
            "mixes",
            "neighbors",
            "senses",
            "drift",
        }
        assert set(found) == shows | {"probe", "wsd", "pairs", "models", "align", "tokenize"}
        assert {(flag.is_flag, flag.help) for flag in found.values()} == {(True, "Print JSON, one object per line.")}

    def test_layers_are_those_of_vectors(self) -> None:
        for name, command in commands().items():
            flag = options(command).get("--layers")
            if flag is not None:
                assert "average" in flag.help, name


class TestOldSpellings:
    def test_names_and_values(self, capsys: pytest.CaptureFixture[str]) -> None:
        known = {
            "--encoder": OldSpelling("--model"),
            "--split": OldSpelling("--lines=paragraphs"),
            "--lines": OldSpelling("--lines=sentences", lambda behind: behind not in ("sentences", "paragraphs")),
        }
        assert _modernise(["--encoder", "x", "--encoder=y"], known) == ["--model", "x", "--model=y"]
        assert _modernise(["a", "--split"], known) == ["a", "--lines=paragraphs"]
        assert _modernise(["--lines", "a.txt"], known) == ["--lines=sentences", "a.txt"]
        assert capsys.readouterr().err.splitlines() == [
            "note: --encoder is now --model; the old spelling works until 0.3",
            "note: --encoder is now --model; the old spelling works until 0.3",
            "note: --split is now --lines=paragraphs; the old spelling works until 0.3",
            "note: --lines is now --lines=sentences; the old spelling works until 0.3",
        ]
        today = ["--lines", "paragraphs", "--lines=sentences", "--model", "x", "--", "--split"]
        assert _modernise(today, known) == today
        assert capsys.readouterr().err == ""

    @pytest.fixture
    def corpus(self, tmp_path: Path) -> Path:
        (tmp_path / "corpus.txt").write_text(TEXT)
        return tmp_path / "corpus.txt"

    def test_index(self, cli: Cli, model_folder: Path, corpus: Path, tmp_path: Path) -> None:
        given = ("-m", model_folder, "--device", "cpu")
        old = cli("index", "--lines", corpus, "-o", tmp_path / "old", *given)
        assert old.err.startswith("note: --lines is now --lines=sentences; ")
        assert "read: 2 sentences" in old.err
        assert "; lines read as sentences" in old.err
        new = cli("index", corpus, "-o", tmp_path / "new", *given)
        assert "read: 4 sentences" in new.err
        assert "; lines read as paragraphs, split into sentences" in new.err
        assert "note" not in new.err
        sought = ("neighbors", tmp_path / "old", "on the bank", "-w", "bank", *given)
        asked = cli(*sought, "--jsonl")
        assert asked.err == "note: --jsonl is now --json; the old spelling works until 0.3\n"
        assert asked.out == cli(*sought, "--json").out

    def test_senses(self, cli: Cli, model_folder: Path, corpus: Path, tmp_path: Path) -> None:
        given = ("senses", corpus, "-w", "bank", "-m", model_folder, "--device", "cpu")
        old = cli(*given, "--json", tmp_path / "old.json")
        assert old.err.startswith("note: --json is now --output; ")
        new = cli(*given, "--json")
        assert json.loads(new.out) == json.loads((tmp_path / "old.json").read_text())
        assert json.loads(new.out)["word"] == "bank"
        assert "note" not in new.err
        assert cli(*given, "--output", tmp_path / "new.json").out == old.out

    def test_train(self, cli: Cli, model_folder: Path, tmp_path: Path) -> None:
        (tmp_path / "train.txt").write_text("Jane B-PER\nran O\n\n")
        given = (
            "--train",
            tmp_path / "train.txt",
            "--dev",
            tmp_path / "train.txt",
            "-o",
            tmp_path / "model",
            "--quick",
        )
        small = ("--epochs", 1, "--hidden", 4, "--word-dim", 4, "--char-dim", 0, "--cache", tmp_path / "cache")
        done = cli("train", "ner", *given, *small, "--encoder", model_folder, "--layers", 1, "--device", "cpu")
        assert done.code == 0, done.err
        assert "note: --encoder is now --model; " in done.err
        assert "note: --layers is now --lstm-layers; " in done.err
        saved = json.loads((tmp_path / "model" / "config.json").read_text())
        assert saved["setup"]["settings"]["lstm_layers"] == 1
        scored = cli("evaluate", tmp_path / "model", tmp_path / "train.txt", "--encoder", model_folder, "--json")
        assert "note: --encoder is now --model; " in scored.err
        assert "F1" in scored.out


@dataclass(frozen=True)
class Settings:
    rate: float = setting(0.5, "learning rate")
    kind: Literal["a", "b"] = setting("a", "which kind", part="model")
    pairs: tuple[tuple[int, int], ...] = setting(((1, 2), (3, 4)), "pairs of numbers")
    deep: bool = setting(True, "go deep")
    depth: int = setting(2, "how deep", was="layers")


class TestFields:
    def command(self, *, without: tuple[str, ...] = ()) -> tuple[typer.Typer, dict[str, Any]]:
        seen: dict[str, Any] = {}

        @old_spellings({"--out": OldSpelling("--output")})
        def run(text: str, output: Annotated[str, typer.Option()] = "", **flags: Any) -> None:
            seen.update(flags, text=text, output=output)

        own = typer.Typer(rich_markup_mode=None, add_completion=False)
        own.command(cls=Command)(with_fields(run, Settings(), without=without))
        return own, seen

    def test_every_field_is_a_flag(self) -> None:
        own, seen = self.command()
        done = CliRunner().invoke(own, ["x", "--rate", "0.25", "--pairs", "5:6,7:8", "--no-deep", "--kind", "b"])
        assert done.exit_code == 0, done.output
        assert seen.pop("text") == "x"
        assert seen.pop("output") == ""
        assert combine(Settings, ("the command line", seen)) == Settings(0.25, "b", ((5, 6), (7, 8)), deep=False)

    def test_former_names_are_flags_too(self) -> None:
        own, seen = self.command()
        done = CliRunner().invoke(own, ["x", "--layers=3", "--out", "y"])
        assert (seen["depth"], seen["output"]) == (3, "y")
        assert "note: --layers is now --depth" in done.output
        assert "note: --out is now --output" in done.output

    def test_help_shows_choices_and_defaults(self) -> None:
        own, _ = self.command(without=("model",))
        shown = " ".join(CliRunner().invoke(own, ["--help"]).stdout.split())
        assert "Learning rate. [default: 0.5]" in shown
        assert "Pairs of numbers. [default: 1:2,3:4]" in shown
        assert "Go deep. [default: yes]" in shown
        assert "--kind" not in shown
        assert "a|b" in " ".join(CliRunner().invoke(self.command()[0], ["--help"]).stdout.split())


def test_commands_have_their_own_name() -> None:
    """Not one that the library uses for the work itself."""
    from elmokit.pretrain import run

    assert inspect.isfunction(run.pretrain)
    assert GROUPS["Training models"]["pretrain"].__name__ == "pretrain_command"
