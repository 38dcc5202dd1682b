"""The command line: one file per command; heavy imports are inside the commands, so that --help is quick."""

import inspect
from typing import Any

import typer
from typer.core import TyperCommand

from elmokit.cli.ablate import ablate
from elmokit.cli.apply import apply
from elmokit.cli.compare import compare
from elmokit.cli.convert import convert
from elmokit.cli.drift import drift
from elmokit.cli.elmo import elmo
from elmokit.cli.embed import embed
from elmokit.cli.evaluate import evaluate
from elmokit.cli.export import export
from elmokit.cli.finetune import finetune
from elmokit.cli.index import index
from elmokit.cli.info import info
from elmokit.cli.mixes import mixes
from elmokit.cli.neighbors import neighbors
from elmokit.cli.pairs import pairs
from elmokit.cli.perplexity import perplexity
from elmokit.cli.predict import predict
from elmokit.cli.pretrain import pretrain
from elmokit.cli.probe import probe
from elmokit.cli.senses import senses
from elmokit.cli.train import train
from elmokit.cli.wsd import wsd


class Command(TyperCommand):
    """A command whose help leaves examples, the indented paragraphs of its docstring, as they are."""

    def __init__(self, *args: Any, help: str | None = None, **options: Any) -> None:
        paragraphs = inspect.cleandoc(help or "").split("\n\n")
        kept = [f"\b\n{p}" if p.startswith("    ") else p for p in paragraphs]  # the mark for "do not wrap"
        super().__init__(*args, help="\n\n".join(kept), **options)


app = typer.Typer(
    name="elmokit",
    help="Deep contextual word vectors (ELMo). `elmokit COMMAND --help` explains a command with examples.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain: quick, no boxes to narrow the text, and <UNK> is not taken for a tag
    pretty_exceptions_enable=False,  # a traceback is for those who debug; what users can mend is told in a line
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

for command in (
    embed,
    elmo,
    compare,
    info,
    convert,
    export,
    pretrain,
    finetune,
    perplexity,
    predict,
    index,
    neighbors,
    drift,
    probe,
    senses,
    wsd,
    pairs,
    mixes,
    evaluate,
    apply,
):
    app.command(cls=Command)(command)
app.add_typer(train)
app.add_typer(ablate)


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        from elmokit import __version__

        typer.echo(__version__)
        raise typer.Exit
