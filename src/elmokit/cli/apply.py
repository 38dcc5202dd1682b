"""`elmokit apply`: a task model at work on text, on the screen or into a file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from elmokit.cli.flags import OLD_ENCODER, Device, Json, MovedEncoderOption, old_spellings


@old_spellings(OLD_ENCODER)
def apply(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Task model made by elmokit train.")],
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="FILE|TEXT", help="Files, folders, patterns, - for standard input, or text."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File to write: .jsonl or, for some tasks, .conll."),
    ] = None,
    encoder: MovedEncoderOption = None,
    json_output: Json = False,
    device: Device = "auto",
) -> None:
    """Run a task model on text.

        elmokit apply model "Jane lives in Paris. Bob does not."
        elmokit apply model letters.txt -o found.jsonl
        cat letters.txt | elmokit apply model - -o found.conll

    JSON has one object per example (for most tasks, a sentence), with its text. Offsets are in characters, from the
    beginning of the text or line.
    """
    from json import dumps

    from rich.console import Console

    from elmokit.cli.inputs import is_source
    from elmokit.cli.progress import counting
    from elmokit.cli.show import print_json
    from elmokit.errors import InputError
    from elmokit.formats import expand_inputs
    from elmokit.formats.atomic import write_text
    from elmokit.formats.resumable import disk_errors
    from elmokit.formats.streams import mend
    from elmokit.tasks.saved import TaskModel

    sources = [(argument, is_source(argument)) for argument in inputs]  # a wrong name is an error before a model loads
    if output is not None and output.suffix not in (".jsonl", ".conll"):
        raise InputError(f"{output}: expected a name that ends in .jsonl or .conll")
    loaded: TaskModel[Any, Any] = TaskModel.from_pretrained(folder, encoder=encoder, device=device)
    task, examples = loaded.task, []
    for argument, is_file in sources:
        if not is_file:
            examples += task.from_text(mend(argument)[0], loaded.tokenizer)
            continue
        for source in expand_inputs([argument]):
            examples += task.read_text(source, loaded.setup.settings, loaded.tokenizer)
    with counting("working, examples") as told:
        found = list(zip(examples, loaded.predict_examples(examples, told=told), strict=True))
    if json_output:
        print_json(task.record(example, prediction) for example, prediction in found)
    elif output is None:
        console = Console(highlight=False, soft_wrap=True)
        for example, prediction in found:
            console.print(task.show(example, prediction))
    if output is None:
        return
    if output.suffix == ".conll":
        lines = [task.conll(example, prediction) for example, prediction in found]
    else:
        lines = [dumps(task.record(e, p), ensure_ascii=False) + "\n" for e, p in found]
    with disk_errors(output):
        write_text(output, "".join(lines))
    typer.echo(f"{output}: {len(found):,} examples", err=True)
