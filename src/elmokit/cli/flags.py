"""What the commands share: options that mean the same everywhere, a flag for each field of a configuration, and the
old spellings of flags, which work with a note until the next minor version.
"""

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

from elmokit.cli.inputs import decode_argument

UNTIL = "0.3"  # where the old spellings end
_TYPE = re.compile(r" <([^<>]+)>$")


class Lines(StrEnum):
    """What one line of text, one JSON field or one Parquet value holds."""

    sentences = "sentences"
    paragraphs = "paragraphs"


EncoderOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Model folder, archive, hub id, bert:NAME, gpt:NAME or static vectors; default: the bundled model.",
    ),
]
EncodersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="As in elmokit embed; may be given several times. Default: the bundled model.",
    ),
]
MovedEncoderOption = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="MODEL", help="Where the encoder is, if not where it was in training."),
]
AllowOtherEncoder = Annotated[
    bool,
    typer.Option("--allow-other-encoder", help="Take another model than the one this was made with; prints a note."),
]
BiLMOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Model folder, archive, .hdf5 file or hub id; default: the bundled model.",
    ),
]


class Engine(StrEnum):
    """Who runs the model."""

    local = "local"
    ray = "ray"


EngineOption = Annotated[Engine, typer.Option(help="Who runs the model: this process, or the workers of Ray.")]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="ADDRESS",
        help="Ray: address of a running cluster; auto: that of this machine. [default: starts one]",
    ),
]
Workers = Annotated[int | None, typer.Option(help="Ray: how many workers. [default: one per GPU or core]", min=1)]
EmbedWorkers = Annotated[
    int | None,
    typer.Option(
        help="Processes that cut the text beside the model, and one more that writes the file; Ray: how many workers. "
        "[default: half of the cores for a GPU, else 0; Ray: one per GPU or core]",
        min=0,
    ),
]
PartRows = Annotated[
    int | None,
    typer.Option(help="Ray: rows of the input that a worker takes at a time; default: a 64th, 50 to 2,000.", min=1),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N; auto takes a GPU if there is one.")]
Tokenized = Annotated[bool, typer.Option("--tokenized", help="The text is already tokenised: split it at spaces only.")]
TokenizerName = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        help="english, unicode, unicode@2 or whitespace (for tokenised text), and others; default: the model's own.",
    ),
]
LinesOption = Annotated[
    Lines,
    typer.Option(
        "--lines", metavar="sentences|paragraphs", help="What a line holds; paragraphs are split into sentences."
    ),
]
FormatOption = Annotated[
    str,
    typer.Option("--format", metavar="FORMAT", help="auto (by file name), text, jsonl, conllu, columns or parquet."),
]
TextField = Annotated[str, typer.Option("--field", help="JSON field or Parquet column with the text or the tokens.")]
BatchTokens = Annotated[int | None, typer.Option(help="Positions in a batch; default: by device.", min=1)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
JsonFile = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the numbers to this file, too, as JSON.")
]


def _checked_chart(path: Path | None) -> Path | None:
    """A name that no chart can have, or a missing library, is an error before any work is done."""
    if path is not None:
        from elmokit.plots import check_chart_path

        check_chart_path(path)
    return path


Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Draw a chart: .html, .svg, .pdf, .png or .json.", callback=_checked_chart),
]
Config = Annotated[Path | None, typer.Option(metavar="FILE", help="TOML file with any of the settings below.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]


class OldSpelling(NamedTuple):
    """What a flag is called now. `before` says whether the argument behind it shows the old use (default: any does)."""

    now: str
    before: Callable[[str], bool] = lambda behind: True


def bare_lines(behind: str) -> bool:
    """`--lines` had no value."""
    return behind not in list(Lines)


OLD_LINES = {"--lines": OldSpelling("--lines=sentences", bare_lines)}
OLD_ENCODER = {"--encoder": OldSpelling("--model"), "-e": OldSpelling("--model")}
OLD_JSONL = {"--jsonl": OldSpelling("--json")}
OLD_JSON_FILE = {"--json": OldSpelling("--output", lambda behind: behind.endswith(".json"))}
OLD_MEASURING = {**OLD_ENCODER, **OLD_JSON_FILE}


def old_spellings(known: Mapping[str, OldSpelling]) -> Callable[[Any], Any]:
    """A command that still takes these flags."""

    def mark(command: Any) -> Any:
        command.old_spellings = known
        return command

    return mark


class Command(TyperCommand):
    """A command whose help leaves examples, the indented paragraphs of its docstring, as they are."""

    def __init__(self, *args: Any, help: str | None = None, **options: Any) -> None:
        paragraphs = inspect.cleandoc(help or "").split("\n\n")
        kept = [f"\b\n{p}" if p.startswith("    ") else p for p in paragraphs]  # the mark for "do not wrap"
        super().__init__(*args, help="\n\n".join(kept), **options)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Words for what an option takes; newer versions of typer show Python's types."""
        write = formatter.write_dl
        formatter.write_dl = lambda rows, **more: write(
            [(_TYPE.sub(_word_of, name), told) for name, told in rows], **more
        )
        super().format_options(ctx, formatter)
        formatter.write_dl = write

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known: Mapping[str, OldSpelling] = getattr(self.callback, "old_spellings", {})
        rest = super().parse_args(ctx, _modernise(args, known))
        ctx.params = {name: decode_argument(value) for name, value in ctx.params.items()}
        return rest


def _word_of(found: re.Match[str]) -> str:
    """` N` for ` <int range>`; nothing behind an argument, which has a name of its own."""
    if not found.string.startswith("-"):
        return ""
    kind = found[1].removeprefix("list[").removesuffix("]").removesuffix(" range")
    return " " + {"str": "TEXT", "int": "N", "float": "X", "path": "PATH", "Path": "PATH"}.get(kind, kind)


def _modernise(args: list[str], known: Mapping[str, OldSpelling]) -> list[str]:
    """The arguments in today's spelling, with a note for each old one."""
    made: list[str] = []
    for at, arg in enumerate(args):
        if arg == "--":
            return made + args[at:]
        name, equals, value = arg.partition("=")
        behind = value if equals else args[at + 1] if at + 1 < len(args) else ""
        if name not in known or not known[name].before(behind):
            made.append(arg)
            continue
        now = known[name].now
        typer.echo(f"note: {name} is now {now}; the old spelling works until {UNTIL}", err=True)
        made.append(f"{now}={value}" if equals else now)
    return made


def with_fields(command: Any, *configs: Any, without: Collection[str] = (), environment: str = "") -> Any:
    """The command with an option for each field of its configurations in place of its `**flags`.

    `configs` are dataclasses with the defaults that the help shows; fields of the parts `without` are left out. With
    `environment`, a variable ENVIRONMENT_FIELD stands for a flag that is not given.
    """
    signature = inspect.signature(command)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    options, before = [], {}
    for usual in configs:
        hints = get_type_hints(type(usual))
        for field in fields(usual):
            if field.metadata.get("part") in without:
                continue
            variable = f"{environment}_{field.name.upper()}" if environment else None
            usually, told = getattr(usual, field.name), field.metadata["help"]
            options.append(_option(field.name, hints[field.name], usually, told, variable))
            if old := field.metadata.get("was"):
                before[_flag(old)] = OldSpelling(_flag(field.name))
    command.__signature__ = signature.replace(parameters=[*own, *options])
    command.__annotations__ = {p.name: p.annotation for p in (*own, *options)}
    return old_spellings({**getattr(command, "old_spellings", {}), **before})(command)


def _option(name: str, hint: Any, usual: Any, help: str, variable: str | None = None) -> inspect.Parameter:
    kind = hint if hint in (int, float, bool) else list[str] if hint == tuple[str, ...] else str
    choices = "|".join(map(str, get_args(hint))) if get_origin(hint) is Literal else None
    end = "" if help.endswith(".") else "."
    sentence = f"{help[0].upper()}{help[1:]}{end}  [default: {as_flag(usual) or 'none'}]"
    note = typer.Option(help=sentence, metavar=choices, show_default=False, envvar=variable, show_envvar=False)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, note]
    )


def as_flag(value: Any) -> str:
    """A field's value as one would give it on the command line; pairs are written 3:128,4:64."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(":".join(map(str, item)) if isinstance(item, tuple) else str(item) for item in value)
    return str(value)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
