"""Task networks on the layers of an encoder: trained, scored, saved and used."""

from typing import TYPE_CHECKING

from elmokit._lazy import lazy

if TYPE_CHECKING:
    from elmokit.tasks.catalogue import load_task
    from elmokit.tasks.classes import ClassPrediction
    from elmokit.tasks.classify.task import Classifier
    from elmokit.tasks.coref.document import Resolved, ResolvedMention
    from elmokit.tasks.coref.task import CoreferenceResolver
    from elmokit.tasks.entail.task import PairClassifier
    from elmokit.tasks.layers import CachedLayers
    from elmokit.tasks.qa.task import Answer, QuestionAnswerer
    from elmokit.tasks.roles.task import RoleLabeller, Roles
    from elmokit.tasks.run import train_task
    from elmokit.tasks.saved import TaskModel
    from elmokit.tasks.setup import Setup, load_setup
    from elmokit.tasks.start import Start, load_start
    from elmokit.tasks.tagging.network import TaggedSentence, TextSpan
    from elmokit.tasks.tagging.task import Tagger
    from elmokit.tasks.task import Task
    from elmokit.tasks.train import Epoch, Trained

__all__ = [
    "Answer", "CachedLayers", "ClassPrediction", "Classifier", "CoreferenceResolver", "Epoch", "PairClassifier",
    "QuestionAnswerer", "Resolved", "ResolvedMention", "RoleLabeller", "Roles", "Setup", "Start",
    "TaggedSentence", "Tagger", "Task", "TaskModel", "TextSpan", "Trained", "load_setup", "load_start", "load_task",
    "train_task",
]  # fmt: skip

__getattr__, __dir__ = lazy(
    __name__,
    {
        "catalogue": "load_task",
        "classes": "ClassPrediction",
        "classify.task": "Classifier",
        "coref.document": "Resolved ResolvedMention",
        "coref.task": "CoreferenceResolver",
        "entail.task": "PairClassifier",
        "layers": "CachedLayers",
        "qa.task": "Answer QuestionAnswerer",
        "roles.task": "RoleLabeller Roles",
        "run": "train_task",
        "saved": "TaskModel",
        "setup": "Setup load_setup",
        "start": "Start load_start",
        "tagging.network": "TaggedSentence TextSpan",
        "tagging.task": "Tagger",
        "task": "Task",
        "train": "Epoch Trained",
    },
)
