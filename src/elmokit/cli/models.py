"""`elmokit models`: what comes with the package, and what can be fetched."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.flags import Json

if TYPE_CHECKING:
    from elmokit.weights.catalogue import Entry


def models(
    remote: Annotated[
        bool, typer.Option("--remote", help="List published models that can be fetched by name.")
    ] = False,
    language: Annotated[
        str | None, typer.Option(metavar="CODE", help="Only models of this language, as en or fi (ISO 639).")
    ] = None,
    json_output: Json = False,
) -> None:
    """List the models that come with elmokit, or with --remote those that it can fetch.

        elmokit models
        elmokit models --remote --language fi

    A model of the first list can be used at once; one of the second is fetched on first use and kept:

        elmokit embed "Hyvää päivää!" -m manylangs:fi

    --remote also asks NLPL's repository for its listing. --json gives addresses too, what names them, and how to cite.
    ELMOKIT_OFFLINE=1 forbids connections.
    """
    rows = _remote(language) if remote else _bundled(language)
    if json_output:
        from elmokit.cli.show import print_json

        print_json(rows)
        return
    _print([{k: v for k, v in row.items() if k in SHOWN} for row in rows], language)


SHOWN = ("name", "kind", "language", "input", "size", "licence", "about", "data", "scores")


def _bundled(language: str | None) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from elmokit.weights.bundled import list_bundled

    rows = []
    for found in list_bundled():
        if language in (None, found.language):
            row = asdict(found) | {"size": f"{found.size / 1e6:.1f} MB", "bytes": found.size}
            rows.append(row | {"folder": str(found.folder)})
    return rows


def _remote(language: str | None) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from elmokit.errors import WeightsError
    from elmokit.weights.catalogue import TABLE
    from elmokit.weights.fetch import fetch_listing

    more: list[Entry] = []
    try:
        more = fetch_listing()
    except WeightsError as error:
        typer.echo(f"note: NLPL's own listing was not read ({error}); this is the table of the package", err=True)
    rows = []
    for entry in (*TABLE.values(), *more):
        if language in (None, entry.language):
            rows.append(asdict(entry) | {"size": f"{entry.size} MB" if entry.size else ""})
    return rows


def _print(rows: list[dict[str, Any]], language: str | None) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if not rows:
        typer.echo(f"no model of language {language!r}; without --language all are listed", err=True)
        return
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in rows[0]:
        table.add_column(title, no_wrap=title in ("name", "size", "kind"), overflow="fold")
    for row in rows:
        table.add_row(*(escape(str(value)) for value in row.values()))
    console.print(table)
