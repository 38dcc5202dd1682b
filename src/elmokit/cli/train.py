"""`elmokit train TASK` and `elmokit ablate TASK`: labelled files in, a task model or a table out.

Every setting of the task is a flag.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from elmokit.cli.flags import OLD_ENCODER, Command, Config, Device, EncoderOption, Quiet, old_spellings, with_fields
from elmokit.tasks.catalogue import CATALOGUE

TRAIN = """Train a network for a task on the vectors of an encoder.

Tasks: {names}. `elmokit train TASK --help` explains one, with examples and all settings.

\b
    elmokit train ner --train train.txt --dev dev.txt -o model
    elmokit evaluate model test.txt
    elmokit apply model "Jane lives in Paris."
"""
TRAIN_TASK = """Train a network for one task: {what}.

    elmokit train {name} --train train --dev dev -o model
    elmokit train {name} --train train --dev dev -o plain --elmo-at none
    elmokit train {name} --train train --dev dev -o model --quick
    elmokit train {name} --train train --dev dev -o model --config my.toml
    elmokit train {name} --train mine --dev dev -o further --from model

Shows the score on DEV after every epoch, stops when it no longer rises and keeps the best network. The encoder is not
trained, and its layers are computed once and kept in files. Stop the run at any time: the same command resumes it after
the last whole epoch, with the same result.
"""
ABLATE = """Compare a task's network with and without the encoder's layers.

Tasks: {names}. `elmokit ablate TASK --help` explains one, with examples and all settings.

\b
    elmokit ablate ner --train train.txt --dev dev.txt -o ablation
"""
ABLATE_TASK = """Show what the encoder's layers are worth to a task: {what}.

    elmokit ablate {name} --train train --dev dev -o ablation
    elmokit ablate {name} --train train --dev dev -o ablation --quick --seeds 1
    elmokit ablate {name} --train train --dev dev -o ablation \\
        --variants none,mix-input --shares 100

Trains the same network without the encoder, with its layer 0, with its top layer, with the average of its layers, and
with learned mixes at the input, at the output and at both, each with several seeds. Then trains on shares of the data,
without the encoder and with it where --elmo-at says. Prints one table: score on DEV, spread over seeds, relative error
reduction, learned layer weights and gamma, and time per training.

The output folder holds ablation.md, ablation.json and charts of the layer weights and of the learning curve. Stop the
run at any time: the same command resumes it. More seeds, variants or shares can be added to a finished one. Start the
same command several times, and the processes share the work.
"""

TrainFile = Annotated[str, typer.Option(metavar="FILE", help="Labelled file to train on.")]
DevFile = Annotated[str, typer.Option(metavar="FILE", help="Labelled file to score on after every epoch.")]
Quick = Annotated[bool, typer.Option("--quick", help="Smaller settings, for a machine without a GPU.")]
Cache = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Keep computed layers here; default: $ELMOKIT_CACHE or the user's cache folder."
    ),
]


class Tasks(TyperGroup):
    """One command per task, made when it is needed: its settings are in its module, which loads torch."""

    make: Callable[[str], Any]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(CATALOGUE)

    def get_command(self, ctx: Any, name: str) -> Any:
        if name not in CATALOGUE:
            ctx.fail(f"no task {name!r}; available are {', '.join(CATALOGUE)}")
        return type(self).make(name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Tasks"):
            formatter.write_dl([(name, entry.help) for name, entry in CATALOGUE.items()])


def train_command(name: str) -> Any:
    """The command that trains one task, with a flag for each of its settings."""
    from elmokit.tasks.catalogue import load_task
    from elmokit.tasks.setup import default_setup, load_setup

    task = load_task(name)

    def run(
        train: TrainFile,
        dev: DevFile,
        output: Annotated[
            Path,
            typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the model; resumes a training in it."),
        ],
        encoder: EncoderOption = None,
        start: Annotated[
            str | None,
            typer.Option(
                "--from",
                metavar="MODEL",
                help="Begin with the network of this model of the same task, a folder or a ready-made one, and its "
                "settings; not with random numbers.",
            ),
        ] = None,
        config: Config = None,
        quick: Quick = False,
        with_encoder: Annotated[bool, typer.Option("--with-encoder", help="Save the encoder with the model.")] = False,
        cache: Cache = None,
        device: Device = "auto",
        restart: Annotated[
            bool, typer.Option("--restart", help="Delete what is in the folder and start again.")
        ] = False,
        quiet: Quiet = False,
        **flags: Any,
    ) -> None:
        from elmokit.tasks.command import TrainingFiles, run_training
        from elmokit.tasks.start import load_start

        begin = None if start is None else load_start(task, start)
        setup = load_setup(task, quick=quick, file=config, flags=flags, start=begin.setup if begin else None)
        files = TrainingFiles(train=train, dev=dev, output=output, encoder=encoder, cache=cache)
        run_training(
            task, setup, files,
            start=begin, device=device, with_encoder=with_encoder, restart=restart, show=not quiet,
        )  # fmt: skip

    return _made(run, name, default_setup(task), TRAIN_TASK.format(name=name, what=task.help))


def ablate_command(name: str) -> Any:
    """The command that compares one task with and without layers, with a flag for each of its settings."""
    from elmokit.tasks.catalogue import load_task
    from elmokit.tasks.setup import default_setup, load_setup

    task = load_task(name)

    def run(
        train: TrainFile,
        dev: DevFile,
        output: Annotated[
            Path,
            typer.Option(
                "--output", "-o", metavar="FOLDER", help="Folder of the report; finished trainings in it stay."
            ),
        ],
        encoder: EncoderOption = None,
        seeds: Annotated[int, typer.Option(help="Trainings of each kind, from --seed on.")] = 3,
        variants: Annotated[
            str | None,
            typer.Option(
                help="What to train on all data, of: none,layer-0,top,average,mix-input,mix-output,mix-both,as-set "
                "(what --elmo-at and --elmo-layers say); default: all that the network takes."
            ),
        ] = None,
        shares: Annotated[
            str, typer.Option(help="Percentages of the training data for the learning curve; 100: no curve.")
        ] = "1,3,10,30,100",
        config: Config = None,
        quick: Quick = False,
        pictures: Annotated[str, typer.Option(help="Format of the charts.", metavar="svg|png|html")] = "svg",
        cache: Cache = None,
        device: Device = "auto",
        quiet: Quiet = False,
        **flags: Any,
    ) -> None:
        from elmokit.tasks.ablate.command import make_plan, run_ablate
        from elmokit.tasks.command import TrainingFiles

        setup = load_setup(task, quick=quick, file=config, flags=flags)
        plan = make_plan(task, setup, seeds=seeds, variants=variants, shares=shares)
        files = TrainingFiles(train=train, dev=dev, output=output, encoder=encoder, cache=cache)
        run_ablate(task, setup, files, plan, device=device, pictures=f".{pictures}", show=not quiet)

    return _made(run, name, default_setup(task), ABLATE_TASK.format(name=name, what=task.help))


def _made(run: Any, name: str, usual: Any, help: str) -> Any:
    command = with_fields(old_spellings(OLD_ENCODER)(run), usual.settings, usual.features, usual.training)
    command.__doc__ = help
    own = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    own.command(name, cls=Command)(command)
    return typer.main.get_command(own)


def _group(name: str, help: str, make: Callable[[str], Any]) -> typer.Typer:
    tasks = type(f"{name.capitalize()}Tasks", (Tasks,), {"make": staticmethod(make)})
    group = typer.Typer(
        name=name,
        cls=tasks,
        help=help.format(names=", ".join(CATALOGUE)),
        short_help=help.partition("\n")[0],
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=False,
    )
    group.callback(invoke_without_command=True)(lambda: None)  # nothing is done before the task's own command
    return group


train = _group("train", TRAIN, train_command)
ablate = _group("ablate", ABLATE, ablate_command)
