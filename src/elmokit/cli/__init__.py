"""`elmokit`: one file per command, heavy imports inside the commands, so that --help is quick."""

import typer

from elmokit.cli.compare import compare
from elmokit.cli.convert import convert
from elmokit.cli.elmo import elmo
from elmokit.cli.embed import embed
from elmokit.cli.info import info
from elmokit.cli.perplexity import perplexity
from elmokit.cli.predict import predict

app = typer.Typer(
    name="elmokit",
    help="Deep contextual word vectors (ELMo). `elmokit COMMAND --help` explains a command with examples.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,  # a traceback is for those who debug; what users can mend is told in a line
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (embed, elmo, compare, info, convert, perplexity, predict):
    app.command()(command)


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        from elmokit import __version__

        typer.echo(__version__)
        raise typer.Exit
