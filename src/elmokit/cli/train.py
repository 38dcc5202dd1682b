"""`elmokit train TASK`: labelled files in, a task model out. Every setting of the task is a flag."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from elmokit.tasks.catalogue import CATALOGUE

TASKS = """Train a network for a task, with the encoder's layers as its features.

Tasks: {names}. `elmokit train TASK --help` shows all settings of one, with examples.

\b
    elmokit train ner --train train.txt --dev dev.txt -o model
    elmokit evaluate model test.txt
    elmokit apply model "Jane lives in Paris."
"""
HELP = """Train a network for one task: {what}.

    elmokit train {name} --train train --dev dev -o model
    elmokit train {name} --train train --dev dev -o plain --elmo-at none
    elmokit train {name} --train train --dev dev -o model --quick
    elmokit train {name} --train train --dev dev -o model --config my.toml

Shows the score on DEV after every epoch, stops when it no longer rises and keeps the best. The encoder stays as it is,
and its layers are computed once and kept in files. Stop it at any time: the same command goes on after the last whole
epoch, to the same result.
"""


class Tasks(TyperGroup):
    """One command per task, made when it is asked for: its settings are in its module, which brings torch."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(CATALOGUE)

    def get_command(self, ctx: Any, name: str) -> Any:
        if name not in CATALOGUE:
            ctx.fail(f"no task {name!r}; available are {', '.join(CATALOGUE)}")
        return task_command(name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Tasks"):
            formatter.write_dl([(name, entry.help) for name, entry in CATALOGUE.items()])


train = typer.Typer(
    name="train",
    cls=Tasks,
    help=TASKS.format(names=", ".join(CATALOGUE)),
    short_help="Train a network for a task.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@train.callback(invoke_without_command=True)
def only_tasks() -> None:
    """Nothing is done before the task's own command."""


def task_command(name: str) -> Any:
    """The command of one task, with a flag for each of its settings."""
    from elmokit.cli import Command
    from elmokit.cli.pretrain import with_fields
    from elmokit.tasks.catalogue import load_task
    from elmokit.tasks.setup import default_setup, load_setup

    task = load_task(name)
    usual = default_setup(task)

    def run(
        train: Annotated[str, typer.Option(help="labelled file to train on")],
        dev: Annotated[str, typer.Option(help="labelled file to score on after every epoch")],
        output: Annotated[
            Path,
            typer.Option("-o", "--output", help="the model's folder; an unfinished training there is gone on with"),
        ],
        encoder: Annotated[
            str | None,
            typer.Option("-m", "--encoder", help="model folder, archive or hub id, bert:NAME, ...; default bundled"),
        ] = None,
        config: Annotated[Path | None, typer.Option(help="a TOML file of the settings below")] = None,
        quick: Annotated[bool, typer.Option("--quick", help="smaller settings, for a machine without a GPU")] = False,
        with_encoder: Annotated[bool, typer.Option("--with-encoder", help="save the encoder with the model")] = False,
        cache: Annotated[
            Path | None, typer.Option(help="folder of computed layers; default among the user's caches")
        ] = None,
        device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")] = "auto",
        restart: Annotated[bool, typer.Option("--restart", help="throw away what is in the folder")] = False,
        quiet: Annotated[bool, typer.Option("--quiet", help="show nothing")] = False,
        **flags: Any,
    ) -> None:
        from elmokit.tasks.command import TrainingFiles, run_training

        setup = load_setup(task, quick=quick, file=config, flags=flags)
        files = TrainingFiles(train=train, dev=dev, output=output, encoder=encoder, cache=cache)
        run_training(task, setup, files, device=device, with_encoder=with_encoder, restart=restart, show=not quiet)

    command = with_fields(run, usual.settings, usual.features, usual.training)
    command.__doc__ = HELP.format(name=name, what=task.help)
    own = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    own.command(name, cls=Command)(command)
    return typer.main.get_command(own)
