"""The command line: one file per command, in groups; heavy imports are inside the commands, so that --help is quick."""

import inspect
from typing import Any

import typer
from typer.core import TyperGroup

from elmokit.cli.align import align
from elmokit.cli.apply import apply
from elmokit.cli.compare import compare
from elmokit.cli.convert import convert
from elmokit.cli.drift import drift
from elmokit.cli.elmo import elmo
from elmokit.cli.embed import embed
from elmokit.cli.evaluate import evaluate
from elmokit.cli.explore import explore
from elmokit.cli.export import export
from elmokit.cli.flags import Command
from elmokit.cli.index import index
from elmokit.cli.info import info
from elmokit.cli.manylangs import manylangs
from elmokit.cli.mixes import mixes
from elmokit.cli.models import models
from elmokit.cli.neighbors import neighbors
from elmokit.cli.pairs import pairs
from elmokit.cli.perplexity import perplexity
from elmokit.cli.predict import predict
from elmokit.cli.pretrain import finetune_command, pretrain_command
from elmokit.cli.probe import probe
from elmokit.cli.sample_text import sample_text
from elmokit.cli.senses import senses
from elmokit.cli.serve import serve
from elmokit.cli.tokenize import tokenize
from elmokit.cli.train import ablate, train
from elmokit.cli.verify import verify
from elmokit.cli.wsd import wsd

GROUPS: dict[str, dict[str, Any]] = {
    "Vectors": {"embed": embed, "compare": compare, "tokenize": tokenize, "elmo": elmo, "manylangs": manylangs},
    "The language model": {"predict": predict, "perplexity": perplexity},
    "Training models": {"pretrain": pretrain_command, "finetune": finetune_command, "sample-text": sample_text},
    "Models": {"models": models, "info": info, "convert": convert, "export": export, "verify": verify},
    "Tasks": {"train": train, "evaluate": evaluate, "apply": apply, "ablate": ablate, "mixes": mixes},
    "Words in a corpus": {"index": index, "neighbors": neighbors, "senses": senses, "drift": drift, "align": align},
    "What the layers know": {"probe": probe, "wsd": wsd, "pairs": pairs},
    "Over the network": {"serve": serve, "explore": explore},
}


class Commands(TyperGroup):
    """Help with the commands in groups, each with a whole sentence."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for group in GROUPS.values() for name in group]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:11}", _sentence(self.get_command(ctx, name))) for name in group])


def _sentence(command: Any) -> str:
    """The first sentence of a command's help."""
    return " ".join(inspect.cleandoc(command.short_help or command.help or "").partition("\n\n")[0].split())


app = typer.Typer(
    name="elmokit",
    cls=Commands,
    help="Deep contextual word vectors (ELMo). `elmokit COMMAND --help` explains a command, with examples.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain: quick, no boxes to narrow the text, and <UNK> is not taken for a tag
    pretty_exceptions_enable=False,  # a traceback is for those who debug; what users can correct is one line
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
for name, command in {name: made for group in GROUPS.values() for name, made in group.items()}.items():
    if isinstance(command, typer.Typer):
        app.add_typer(command)
    else:
        app.command(name, cls=Command)(command)


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        from elmokit import __version__

        typer.echo(__version__)
        raise typer.Exit
