"""`elmokit evaluate`: how good a task model is on a labelled file."""

from pathlib import Path
from typing import Annotated, Any

import typer


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a model that `elmokit train` made.")],
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Labelled files, each scored on its own.")],
    encoder: Annotated[
        str | None,
        typer.Option("-m", "--encoder", help="Where the encoder is, if not where it was in training."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the scores as a line of JSON per file.")] = False,
) -> None:
    """Score a task model on labelled files, which are read as in training.

        elmokit evaluate model test.txt
        elmokit evaluate model dev.txt test.txt.xz --json

    The first score is the one that counts.
    """
    from json import dumps

    from elmokit.cli.progress import counting
    from elmokit.tasks.saved import TaskModel

    loaded: TaskModel[Any, Any] = TaskModel.from_pretrained(model, encoder=encoder, device=device)
    for file in files:
        examples = loaded.task.read(file, loaded.setup.settings)
        for remark in loaded.task.remarks(examples, loaded.setup.settings):
            typer.echo(remark, err=True)
        with counting("scoring, examples") as told:
            scores = loaded.evaluate(examples, told=told)
        if json:
            typer.echo(dumps({"file": file, **scores}))
            continue
        typer.echo(f"{file} ({loaded.task.name})")
        width = max(map(len, scores), default=0)
        for name, value in scores.items():
            typer.echo(f"  {name:{width}}  {100 * value:6.2f}")
