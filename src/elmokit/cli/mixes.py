"""`elmokit mixes`: the layer weights that task models learned."""

from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.flags import Json, Plot


def mixes(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL", help="Folders of task models, or names of ready-made ones.")
    ],
    plot: Plot = None,
    json_output: Json = False,
) -> None:
    """Show the layer weights that task models learned.

        elmokit mixes ner pos chunk
        elmokit mixes my-ner/ my-qa/ --plot mixes.svg

    A mix adds up the layers by weights that sum to 1, and scales the sum by gamma; both are learned with the task.
    """
    from elmokit._terminal import Console
    from elmokit.analysis.mixes import read_mixes
    from elmokit.cli.show import print_json, table_of
    from elmokit.weights.bundled import find_task_model

    found = read_mixes([find_task_model(model) for model in models])
    if json_output:
        print_json(
            {"model": mix.model, "weights": dict(zip(mix.names, mix.shares, strict=True)), "gamma": mix.gamma}
            for mix in found
        )
    else:
        rows = []
        for mix in found:
            weights = "  ".join(f"{name} {share:.3f}" for name, share in zip(mix.names, mix.shares, strict=True))
            rows.append([mix.model, weights, f"{mix.gamma:.3f}"])
        Console(highlight=False).print(table_of(["model", "layer weights", "gamma"], rows, left=2))
    if plot is not None:
        from elmokit.plots import draw_mixes, save_chart

        save_chart(draw_mixes(found), plot)
        typer.echo(f"{plot}: written", err=True)
