"""`elmokit sample-text`: some plain English to try things with."""

import typer


def sample_text() -> None:
    """Print a few thousand words of plain English, to use as a corpus.

    A line is a paragraph. Words such as bank, play, cell and spring are used in several senses:

        elmokit sample-text > corpus.txt
        elmokit senses corpus.txt --word bank
    """
    from importlib.resources import files

    typer.echo(files("elmokit.cli").joinpath("sample.txt").read_text(encoding="utf-8"), nl=False)
