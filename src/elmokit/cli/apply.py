"""`elmokit apply`: a task model at work on text, on the screen or into a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.flags import OLD_ENCODER, AllowOtherEncoder, Device, Json, MovedEncoderOption, old_spellings

if TYPE_CHECKING:
    from elmokit.formats import ReadReport
    from elmokit.tasks.saved import TaskModel
    from elmokit.tasks.task import Task


FIRST = 512  # positions of the first part that is printed: the first lines come soon


@old_spellings(OLD_ENCODER)
def apply(
    folder: Annotated[
        str,
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
    field: Annotated[
        str, typer.Option(metavar="NAME", show_default=False, help="JSON field or column with the text; default: text.")
    ] = "",
    restart: Annotated[
        bool, typer.Option("--restart", help="Delete what an unfinished run left and start again.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Run a task model on text.

        elmokit apply model "Jane lives in Paris. Bob does not."
        elmokit apply model letters.txt -o found.jsonl
        cat letters.txt | elmokit apply model - -o found.conll
        elmokit apply ner "Jane lives in Paris. Bob does not." --json

    Text may be whole paragraphs. What is found is marked, in colour on a terminal. A name such as ner means a model
    that comes with elmokit (`elmokit models` lists them), unless a model of that name is here. JSON has one object
    per example (for most tasks, a sentence), with its text. Offsets are in characters, from the beginning of the text
    or line.

    Input may be of any size: it is read, worked on and printed part by part. A file (-o) appears when it is complete,
    and the same command resumes a run that was stopped.
    """
    from elmokit.cli.inputs import is_source, one_thread
    from elmokit.cli.progress import embedding, tell_counts
    from elmokit.cli.show import count
    from elmokit.errors import InputError
    from elmokit.formats import ReadReport
    from elmokit.tasks.apply import check_columns, check_target, write_predictions
    from elmokit.tasks.saved import TaskModel

    if output is not None and (json_output or conll_output):
        raise InputError("--json and --conll print what is found, -o writes it to a file; give one of them")
    if json_output and conll_output:
        raise typer.BadParameter("give one of --json and --conll")
    named = [is_source(argument) for argument in inputs]  # a wrong name is an error before a model loads
    if output is not None:
        check_target(output)
    with one_thread(wanted=not any(named)):
        loaded: TaskModel[Any, Any] = TaskModel.from_pretrained(
            folder, encoder=encoder, device=device, allow_other_encoder=allow_other_encoder
        )
        task, read = loaded.task, ReadReport()
        sources = _sources(task, inputs, field)
        files = [source for source, is_text in sources if not is_text and source != "-"]
        if output is not None and output.exists() and any(map(output.samefile, files)):
            raise InputError(f"{output}: is among the files to read; write to another")
        examples = _read(loaded, sources, read, field)
        if output is None:
            if conll_output:
                check_columns(task)
            done = _print(loaded, examples, json_output=json_output, conll_output=conll_output)
        else:
            given = [str(source) for source, _ in sources]
            with embedding(given, output, read, what="working", unit=task.unit) as told:
                done = write_predictions(loaded, examples, output, restart=restart, told=told).sentences
            if done:
                typer.echo(f"{output}: {count(done, 'example')}", err=True)
    tell_counts([("bytes that are not UTF-8", read.bad_bytes, "read as U+FFFD")])
    if not done:
        kept = "" if output is None or not output.stat().st_size else f"; {output} stays as it was"
        typer.echo(f"the input held no {task.unit}{kept}", err=True)


def _sources(task: "Task[Any, Any]", inputs: list[str], field: str) -> list[tuple[str | Path, bool]]:
    """Every file to read, and every text (True), in order. What the task cannot read is refused before it works."""
    from elmokit.cli.inputs import is_source
    from elmokit.errors import InputError
    from elmokit.formats import expand_inputs, format_of
    from elmokit.formats.streams import source_name, suffix_of
    from elmokit.tasks.task import refuse_tables

    found: list[tuple[str | Path, bool]] = []
    for argument in inputs:
        is_text = not is_source(argument)
        files: list[str | Path] = [] if is_text else expand_inputs([argument], tables=task.tables)
        found += [(argument, True)] if is_text else [(file, False) for file in files]
    for source, is_text in found:
        if not is_text and suffix_of(source) not in task.tables:
            refuse_tables(source)
        has_fields = not is_text and (suffix_of(source) in task.tables or format_of(source) in ("jsonl", "parquet"))
        if field and not has_fields:
            named = str(source)[:40] if is_text else source_name(source)
            raise InputError(
                f"{named}: has no fields to choose {field!r} from; --field is for files whose names end in .jsonl or "
                ".parquet, or in .csv or .tsv where the task reads them"
            )
    return found


def _read(
    model: "TaskModel[Any, Any]", sources: list[tuple[str | Path, bool]], read: "ReadReport", field: str
) -> Iterator[Any]:
    """The examples of all arguments, in order."""
    from elmokit.formats.streams import mend

    for source, is_text in sources:
        if not is_text:
            yield from model.task.read_text(source, model.setup.settings, model.tokenizer, field=field, report=read)
            continue
        text, bad = mend(str(source))
        read.bad_bytes += bad
        read.consumed += len(str(source))
        yield from model.task.from_text(text, model.tokenizer)


def _print(model: "TaskModel[Any, Any]", examples: Iterator[Any], *, json_output: bool, conll_output: bool) -> int:
    """Prints what is found, part by part; how many examples there were."""
    from elmokit._terminal import Console
    from elmokit.cli.progress import counting
    from elmokit.cli.show import echo_text, print_json, print_parts
    from elmokit.tasks.apply import cut_examples

    task, console, done = model.task, Console(highlight=False, soft_wrap=True), 0
    for part in cut_examples(examples, first=FIRST):
        with counting(f"working, {task.unit}") as told:  # gone again before anything is printed
            found = list(zip(part, model.predict_examples(part, told=told), strict=True))
        if json_output:
            print_json(task.record(example, prediction) for example, prediction in found)
        elif conll_output:
            echo_text("".join(task.conll(example, prediction) for example, prediction in found), nl=False)
        else:
            for example, prediction in found:
                print_parts(console, task.show(example, prediction))
        done += len(found)
    return done
