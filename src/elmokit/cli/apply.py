"""`elmokit apply`: a task model at work on text, on the screen or into a file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from elmokit.cli.flags import OLD_ENCODER, AllowOtherEncoder, Device, Json, MovedEncoderOption, old_spellings


@old_spellings(OLD_ENCODER)
def apply(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER|NAME", help="Task model made by elmokit train, or the name of one that comes with elmokit."
        ),
    ],
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="FILE|TEXT", help="Files, folders, patterns, - for standard input, or text."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File to write: .jsonl or, for some tasks, .conll."),
    ] = None,
    encoder: MovedEncoderOption = None,
    allow_other_encoder: AllowOtherEncoder = False,
    json_output: Json = False,
    conll_output: Annotated[
        bool, typer.Option("--conll", help="Print CoNLL columns, for tasks that have them.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Run a task model on text.

        elmokit apply model "Jane lives in Paris. Bob does not."
        elmokit apply model letters.txt -o found.jsonl
        cat letters.txt | elmokit apply model - -o found.conll
        elmokit apply ner "Jane lives in Paris. Bob does not." --json

    Text may be whole paragraphs. What is found is marked, in colour on a terminal. A name such as ner means a model
    that comes with elmokit (`elmokit models` lists them), unless a folder of that name is here. JSON has one object
    per example (for most tasks, a sentence), with its text. Offsets are in characters, from the beginning of the text
    or line.
    """
    from json import dumps

    from elmokit._terminal import Console
    from elmokit.cli.inputs import is_source, one_thread
    from elmokit.cli.progress import counting
    from elmokit.cli.show import count, echo_text, print_json
    from elmokit.errors import InputError
    from elmokit.formats import expand_inputs
    from elmokit.formats.atomic import write_text
    from elmokit.formats.resumable import disk_errors
    from elmokit.formats.streams import mend
    from elmokit.tasks.saved import TaskModel

    if json_output and conll_output:
        raise typer.BadParameter("give one of --json and --conll")
    sources = [(argument, is_source(argument)) for argument in inputs]  # a wrong name is an error before a model loads
    if output is not None and output.suffix not in (".jsonl", ".conll"):
        raise InputError(f"{output}: expected a name that ends in .jsonl or .conll")
    with one_thread(wanted=not any(is_file for _, is_file in sources)):
        loaded: TaskModel[Any, Any] = TaskModel.from_pretrained(
            folder, encoder=encoder, device=device, allow_other_encoder=allow_other_encoder
        )
        task, examples = loaded.task, []
        for argument, is_file in sources:
            if not is_file:
                examples += task.from_text(mend(argument)[0], loaded.tokenizer)
                continue
            for source in expand_inputs([argument]):
                examples += task.read_text(source, loaded.setup.settings, loaded.tokenizer)
        with counting("working, examples") as told:
            found = list(zip(examples, loaded.predict_examples(examples, told=told), strict=True))
    if not found:
        typer.echo(f"the input held no {task.unit}", err=True)
    if json_output:
        print_json(task.record(example, prediction) for example, prediction in found)
    elif conll_output:
        echo_text("".join(task.conll(example, prediction) for example, prediction in found), nl=False)
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
    typer.echo(f"{output}: {count(len(found), 'example')}", err=True)
