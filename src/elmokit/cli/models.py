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
    _print(rows, language)


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
    """A line for each model, and below it what it was made of and how good it is."""
    if not rows:
        typer.echo(f"no model of language {language!r}; without --language all are listed", err=True)
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        facts = [str(row[key]) for key in ("kind", "language", "input", "size") if row.get(key)]
        typer.echo(f"{row['name']:{width}}  {', '.join(facts)}, licence: {row['licence']}")
        for key in ("about", "data", "scores"):
            if row.get(key):
                typer.echo(f"{'':{width}}  {row[key]}")
