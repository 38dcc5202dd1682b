"""`elmokit apply`: a task model at work on text, on the screen or into a file."""

from pathlib import Path
from typing import Annotated, Any

import typer


def apply(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a model that `elmokit train` made.")],
    inputs: Annotated[
        list[str], typer.Argument(metavar="TEXT|FILE", help="Text itself, files, or - for standard input.")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write: .jsonl, or .conll where the task has such.")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option("-m", "--encoder", help="Where the encoder is, if not where it was in training."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Let a task model work on text.

        elmokit apply model "Jane lives in Paris. Bob does not."
        elmokit apply model letters.txt -o found.jsonl
        cat letters.txt | elmokit apply model - -o found.conll

    Without -o the result is shown to be read. In JSON lines there is one object per example (of most tasks, a
    sentence), with its text, and places as character offsets from the beginning of the text or line that it stands in.
    """
    from json import dumps

    from rich.console import Console

    from elmokit.cli.inputs import is_source
    from elmokit.cli.progress import counting
    from elmokit.errors import InputError
    from elmokit.formats import expand_inputs, write_text
    from elmokit.formats.streams import mend
    from elmokit.tasks.saved import TaskModel

    sources = [(argument, is_source(argument)) for argument in inputs]  # a mistyped name is told before a model loads
    if output is not None and output.suffix not in (".jsonl", ".conll"):
        raise InputError(f"{output}: expected a name that ends in .jsonl or .conll")
    loaded: TaskModel[Any, Any] = TaskModel.from_pretrained(model, encoder=encoder, device=device)
    task, examples = loaded.task, []
    for argument, is_file in sources:
        if not is_file:
            examples += task.from_text(mend(argument)[0], loaded.tokenizer)
            continue
        for source in expand_inputs([argument]):
            examples += task.read_text(source, loaded.setup.settings, loaded.tokenizer)
    with counting("working, examples") as told:
        found = list(zip(examples, loaded.predict_examples(examples, told=told), strict=True))
    if output is None:
        console = Console(highlight=False, soft_wrap=True)
        for example, prediction in found:
            console.print(task.show(example, prediction))
        return
    if output.suffix == ".conll":
        lines = [task.conll(example, prediction) for example, prediction in found]
    else:
        lines = [dumps(task.record(e, p), ensure_ascii=False) + "\n" for e, p in found]
    write_text(output, "".join(lines))
    typer.echo(f"{output}: {len(found):,} examples", err=True)
