"""`elmokit evaluate`: how good a task model is on a labelled file."""

from typing import Annotated, Any

import typer

from elmokit.cli.flags import OLD_ENCODER, AllowOtherEncoder, Device, Json, MovedEncoderOption, old_spellings


@old_spellings(OLD_ENCODER)
def evaluate(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER", help="Task model made by elmokit train, or the name of one that comes with elmokit."
        ),
    ],
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Labelled files, each scored on its own.")],
    encoder: MovedEncoderOption = None,
    allow_other_encoder: AllowOtherEncoder = False,
    device: Device = "auto",
    json_output: Json = False,
) -> None:
    """Score a task model on labelled files.

        elmokit evaluate model test.txt
        elmokit evaluate model dev.txt test.txt.xz --json

    Files are read as in training. The first score is the one that counts.
    """
    from elmokit.cli.progress import counting
    from elmokit.cli.show import echo_text, print_json
    from elmokit.errors import InputError
    from elmokit.tasks.saved import TaskModel

    loaded: TaskModel[Any, Any] = TaskModel.from_pretrained(
        folder, encoder=encoder, device=device, allow_other_encoder=allow_other_encoder
    )
    for file in files:
        examples = loaded.task.read(file, loaded.setup.settings)
        if not examples:
            raise InputError(f"{file}: holds no examples to score on")
        for remark in loaded.task.remarks(examples, loaded.setup.settings):
            typer.echo(remark, err=True)
        with counting("scoring, examples") as told:
            scores = loaded.evaluate(examples, told=told)
        if json_output:
            print_json([{"file": file, **scores}])
            continue
        typer.echo(f"{file} ({loaded.task.name})")
        width = max(map(len, scores), default=0)
        for name, value in scores.items():
            echo_text(f"  {name:{width}}  {100 * value:6.2f}")
