"""Where a training may begin instead of at random numbers: the network of an earlier model of the same task.

Its weights are a beginning and no more: data and encoder may be others, as long as the network keeps its shape.
"""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from elmokit.errors import InputError, WeightsError
from elmokit.tasks.saved import CONFIG, load_network, load_words, read_description
from elmokit.tasks.setup import Setup, read_setup
from elmokit.tasks.task import Network, Task
from elmokit.tasks.words import WordVocabulary
from elmokit.weights.bundled import find_task_model


@dataclass(frozen=True, slots=True)
class Start:
    """The network of a saved model, the settings it was made with, and the words that have vectors of their own."""

    source: str
    folder: Path
    setup: Setup
    network: Network[Any, Any]
    vocabulary: WordVocabulary
    digest: str  # of its weights

    def check(self, setup: Setup) -> None:
        """Refuses settings of the words' own vectors, which come from this model with its words."""
        own, asked = self.setup.features, setup.features
        for name in ("vectors", "max_vectors", "word_dim", "min_count"):
            there, here = getattr(own, name), getattr(asked, name)
            if there != here:
                raise InputError(
                    f"{self.source}: its words and their vectors are what the training begins with, so {name} "
                    f"({there!r} there, {here!r} here) cannot change; leave it out, or start without this model"
                )

    def begin(self, fresh: Network[Any, Any]) -> Network[Any, Any]:
        """A network like the fresh one, with the weights of this one.

        Labels and the like stay those of this one. The training data may lack some of them, but have no others.
        """
        kept: dict[str, Any] = {}
        for field in fields(fresh.config):
            wanted, own = (getattr(network.config, field.name) for network in (fresh, self.network))
            if isinstance(wanted, tuple) and wanted != own:
                if strange := [value for value in wanted if value not in own]:
                    raise InputError(
                        f"{self.source}: knows no {strange[0]!r}, which is among the {field.name} of the training "
                        "data; start without this model"
                    )
                kept[field.name] = own
        network = type(fresh)(replace(fresh.config, **kept))
        there, here = (
            {name: tuple(values.shape) for name, values in one.state_dict().items()} for one in (self.network, network)
        )
        if differing := [name for name in {**there, **here} if there.get(name) != here.get(name)]:
            name = differing[0]
            raise InputError(
                f"{self.source}: a network of another shape ({name}: {there.get(name, 'none')} there, "
                f"{here.get(name, 'none')} here); give an encoder of the same width and leave its settings as they "
                "are, or start without this model"
            )
        network.load_state_dict(self.network.state_dict())
        return network


def load_start(task: Task[Any, Any], model: str | Path) -> Start:
    """A saved model of this task, its folder or the name of one that comes with elmokit, as where to begin."""
    folder = find_task_model(model)
    stated = read_description(folder)
    if stated.task != task.name:
        raise InputError(f"{folder}: a model of the task {stated.task!r}; expected one of {task.name!r} to start from")
    setup = read_setup(task, stated.setup, source=f"{folder / CONFIG}: setup", error=WeightsError)
    network = load_network(task, folder, stated)
    return Start(str(model), folder, setup, network, load_words(folder, stated, network), stated.weights)
