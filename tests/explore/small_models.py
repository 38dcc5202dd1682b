"""A small trained model of every kind of task, on disk: what they answer does not matter, only its form."""

from pathlib import Path
from typing import Any

from elmokit.encoders import Elmo
from elmokit.tasks.catalogue import load_task
from elmokit.tasks.coref.document import CorefDocument, Mention, order_clusters, place_sentences
from elmokit.tasks.run import train_task
from elmokit.tasks.setup import load_setup

SMALL = {"word_dim": 4, "char_dim": 0, "epochs": 1, "hidden": 4}
NAMES = "Ann X I-PER\nsees X O\nNew X I-LOC\nYork X I-LOC\n\nBob X I-PER\nsees X O\nAnn X I-PER\n\n"
PAIRS = "A man sings\tSomebody sings\tyes\nA man sings\tIt rains\tno\n"
FILES = {
    "ner": ("train.txt", NAMES * 6),
    "classify": ("train.tsv", "text\tlabel\n" + "A lovely film\tgood\nA dull book\tbad\n" * 4),
    "entail": ("train.tsv", "premise\thypothesis\tlabel\n" + PAIRS * 4),
    "qa": (
        "train.json",
        '{"data": [{"paragraphs": [{"context": "Oil cost ten dollars in May.", "qas": [{"id": "a", "question": '
        '"What did oil cost?", "answers": [{"text": "ten dollars", "answer_start": 9}]}]}]}]}',
    ),
    "roles": (
        "train.jsonl",
        '{"words": ["Mary", "sold", "it"], "frames": [{"verb": 1, "tags": ["B-A0", "B-V", "B-A1"]}]}\n',
    ),
}
FLAGS: dict[str, dict[str, Any]] = {
    "ner": {"epochs": 8, "learning_rate": 0.02, "batch_size": 4, "lstm_layers": 1},
    "classify": {},
    "entail": {},
    "qa": {"longest_answer": 3},
    "roles": {"lstm_layers": 2, "predicate_dim": 2},
    "coref": {"scorer": 5, "feature_dim": 2, "max_width": 3},
}


def make_task_models(folder: Path, elmo: Elmo) -> list[Path]:
    """The folders, called by their tasks. `ner` mixes the layers of an ELMo, the others use none."""
    made = []
    for name, flags in FLAGS.items():
        task = load_task(name)
        setup = load_setup(task, flags={**SMALL, "elmo_at": "input" if name == "ner" else "none", **flags})
        if name == "coref":
            sentences = place_sentences([("Ann", "met", "Bob", "."), ("She", "likes", "him", ".")])
            clusters = order_clusters([[Mention(0, 1), Mention(4, 5)]])
            examples: list[Any] = [CorefDocument(f"nw/{k}", sentences, clusters, ("-",) * 8, "nw") for k in range(4)]
        else:
            data = folder / f"{name}-{FILES[name][0]}"
            data.write_text(FILES[name][1], encoding="utf-8")
            examples = task.read(data, setup.settings)
        model = train_task(task, setup, examples, examples, encoder=elmo if name == "ner" else None, device="cpu")
        made.append(model.save(folder / name))
    return made
