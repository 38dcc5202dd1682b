"""`elmokit ablate TASK`: what the encoder's layers are worth to a task, as one table. Every setting is a flag."""

from pathlib import Path
from typing import Annotated, Any

import typer

from elmokit.cli.train import Tasks
from elmokit.tasks.catalogue import CATALOGUE

TASKS = """Train one network with and without the encoder's layers, and compare.

Tasks: {names}. `elmokit ablate TASK --help` shows all settings of one, with examples.

\b
    elmokit ablate ner --train train.txt --dev dev.txt -o ablation
"""
HELP = """Show what the encoder's layers are worth: {what}.

    elmokit ablate {name} --train train --dev dev -o ablation
    elmokit ablate {name} --train train --dev dev -o ablation --quick --seeds 1
    elmokit ablate {name} --train train --dev dev -o ablation --variants none,mix-input --shares 100

Trains the same network without the encoder, with its layer 0, its top layer, the average of its layers, and mixes that
are learnt at the input, at the output and at both, each with several seeds; and, on shares of the training data,
without the encoder and with it where --elmo-at says. Prints one table: score on DEV, spread over seeds, relative
error reduction, learnt layer weights and gamma, time of a training.

ablation.md, ablation.json and pictures of the layer weights and of the curve are in the output folder. Stop it at any
time: the same command goes on with the training it was in. More seeds, variants or shares may be added to a finished
one.
"""


class AblatedTasks(Tasks):
    """One command per task, made when it is asked for."""

    def get_command(self, ctx: Any, name: str) -> Any:
        if name not in CATALOGUE:
            ctx.fail(f"no task {name!r}; available are {', '.join(CATALOGUE)}")
        return ablate_command(name)


ablate = typer.Typer(
    name="ablate",
    cls=AblatedTasks,
    help=TASKS.format(names=", ".join(CATALOGUE)),
    short_help="Compare a task's network with and without the encoder's layers.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@ablate.callback(invoke_without_command=True)
def only_tasks() -> None:
    """Nothing is done before the task's own command."""


def ablate_command(name: str) -> Any:
    """The command of one task, with a flag for each of its settings."""
    from elmokit.cli import Command
    from elmokit.cli.pretrain import with_fields
    from elmokit.tasks.catalogue import load_task
    from elmokit.tasks.setup import default_setup, load_setup

    task = load_task(name)
    usual = default_setup(task)

    def run(
        train: Annotated[str, typer.Option(help="labelled file to train on")],
        dev: Annotated[str, typer.Option(help="labelled file to score on")],
        output: Annotated[
            Path,
            typer.Option("-o", "--output", help="the report's folder; what was trained there is not trained again"),
        ],
        encoder: Annotated[
            str | None,
            typer.Option("-m", "--encoder", help="model folder, archive or hub id, bert:NAME, ...; default bundled"),
        ] = None,
        seeds: Annotated[int, typer.Option(help="trainings of each kind, from --seed on")] = 3,
        variants: Annotated[
            str | None,
            typer.Option(
                help="what is trained on all data: of none,layer-0,top,average,mix-input,mix-output,mix-both,as-set "
                "(what --elmo-at and --elmo-layers say); default all that the network takes"
            ),
        ] = None,
        shares: Annotated[
            str, typer.Option(help="percentages of the training data for the curve; 100: no curve")
        ] = "1,3,10,30,100",
        config: Annotated[Path | None, typer.Option(help="a TOML file of the settings below")] = None,
        quick: Annotated[bool, typer.Option("--quick", help="smaller settings, for a machine without a GPU")] = False,
        pictures: Annotated[str, typer.Option(help="svg, png or html", metavar="FORMAT")] = "svg",
        cache: Annotated[
            Path | None, typer.Option(help="folder of computed layers; default among the user's caches")
        ] = None,
        device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")] = "auto",
        quiet: Annotated[bool, typer.Option("--quiet", help="show nothing")] = False,
        **flags: Any,
    ) -> None:
        from elmokit.tasks.ablate.command import make_plan, run_ablate
        from elmokit.tasks.command import TrainingFiles

        setup = load_setup(task, quick=quick, file=config, flags=flags)
        plan = make_plan(task, setup, seeds=seeds, variants=variants, shares=shares)
        files = TrainingFiles(train=train, dev=dev, output=output, encoder=encoder, cache=cache)
        run_ablate(task, setup, files, plan, device=device, pictures=f".{pictures}", show=not quiet)

    command = with_fields(run, usual.settings, usual.features, usual.training)
    command.__doc__ = HELP.format(name=name, what=task.help)
    own = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    own.command(name, cls=Command)(command)
    return typer.main.get_command(own)
