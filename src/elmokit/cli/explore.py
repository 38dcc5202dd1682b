"""`elmokit explore`: the explorer in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.flags import Device, EncoderOption


def explore(
    indexes: Annotated[
        list[Path] | None, typer.Argument(metavar="INDEX", help="Folders made by elmokit index; none is needed.")
    ] = None,
    model: EncoderOption = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER|NAME",
            help="Task model to show, before those that come with elmokit; give it several times for several.",
        ),
    ] = None,
    run: Annotated[
        list[Path] | None, typer.Option(metavar="FOLDER", help="Run of elmokit pretrain or train, to see its curves.")
    ] = None,
    probe: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="What elmokit probe -o FILE wrote, to see its scores.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; others than 127.0.0.1 let other machines in.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65_535)] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the address, and open no browser.")] = False,
    device: Device = "auto",
) -> None:
    """Look at words, senses, layers and change in the browser.

        elmokit explore
        elmokit explore index/
        elmokit explore old-index/ new-index/ --task ner-model/

    Works without an index, too; with one, all uses of a word can be seen, and with two, how words changed. Without a
    model, the one that the first index was made with is taken, else the bundled one. Ctrl-C ends it.
    """
    import webbrowser

    from elmokit.explore import prepare
    from elmokit.server import run_app

    app, service, bound, address = prepare(
        indexes or (),
        model=model,
        tasks=task or (),
        runs=run or (),
        probes=probe or (),
        host=host,
        port=port,
        device=device,
    )

    def told() -> None:
        typer.echo(f"elmokit explorer: {address}  (Ctrl-C ends it)")
        if not no_open:
            webbrowser.open(address)

    run_app(app, service, bound, on_start=told)
