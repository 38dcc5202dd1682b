"""Make the files of this folder: one of every kind that elmokit 0.1.0 writes. Run with 0.1.0 only.

    git checkout 48f82c6 -- src          # in a clone: the package as it was in 0.1.0
    OMP_NUM_THREADS=1 PYTHONPATH=src python tests/data/v0.1.0/make.py
    git checkout HEAD -- src

Everything here but this file is removed and made anew. Later versions must read what 0.1.0 wrote, so nobody should need
to run it again; it is kept to show how each file came to be. `tests/test_version_0_1_0.py` opens all of it.

`commands.json` holds the commands that made a thing, by its name, and `expected.json` and `expected.npz` what came out.
Commands ran in this folder, so all paths are relative. What is half done was stopped by an exception in the middle, in
place of a kill, so that it always stops at the same place. No dropout is used where numbers of a resumed training are
compared: which numbers are drawn depends on the machine.
"""

import contextlib
import io
import itertools
import json
import lzma
import os
import pkgutil
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

import elmokit
from elmokit import Elmo, ElmoEmbedding, MixConfig
from elmokit.__main__ import main
from elmokit.encoders.static_distil import distil_words
from elmokit.encoders.static_export import export_word2vec
from elmokit.index import Index
from elmokit.integrations.onnx import OnnxElmo

HERE = Path(__file__).resolve().parent
TIME = 1_700_000_000 * 10**9  # of the corpus: a prepared one knows its text by path, size and time
PLACE = "THE-FOLDER"  # stands for the path of this folder in what holds absolute paths

SENTENCES = [
    ["Ann", "gives", "the", "cat", "some", "milk", "."],
    ["Nobody", "saw", "it", "in", "Zürich"],
    [],
    ["x" * 60, "the", "owl", "猫"],
]
WORDS = ["the", "cat", "owl", "milk", "Ann", "gives", "sees", "New"]

NETWORK = {"cell_dim": 8, "projection_dim": 4, "filters": "1:3,2:4", "char_dim": 3, "max_characters": 20}
TRAINING = {
    "vocab_size": 40, "samples": 16, "rows": 4, "window": 6, "learning_rate": 0.05, "warmup": 0.1, "heldout": 0.1,
    "dropout": 0.0, "lines": "sentences", "state": "carry", "log_every": 5, "keep_checkpoints": 1, "workers": 1,
}  # fmt: skip
NO_DROPOUT = {"elmo_dropout": 0.0, "word_dropout": 0.0, "feature_dropout": 0.0, "dropout": 0.0}
TASK = {"word_dim": 4, "char_dim": 3, "char_filters": "2:4", "hidden": 4, "batch_size": 4, "learning_rate": 0.03}
TASK |= {"epochs": 6, **NO_DROPOUT}
LONGER = {"epochs": 16, "patience": 16, "decay": 1.0, "batch_size": 1, "learning_rate": 0.02}

commands: dict[str, list[list[str]]] = {}
expected: dict[str, Any] = {}
numbers: dict[str, Any] = {}


class Stop(BaseException):
    """In place of a kill."""


def run(name: str, *command: object, kept: bool = True) -> str:
    """`elmokit COMMAND` in this process; what it printed."""
    words = [str(word) for word in command]
    said = io.StringIO()
    with mock.patch.object(sys, "argv", ["elmokit", *words]), contextlib.redirect_stdout(said):
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                raise RuntimeError(f"{name}: {' '.join(words)} ended with {ended.code}") from ended
    if kept:
        commands.setdefault(name, []).append(words)
    return said.getvalue()


def flags(settings: dict[str, Any]) -> list[str]:
    found = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        found += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return found


@contextlib.contextmanager
def stopped(target: str, *, after: int) -> Iterator[None]:
    """Whatever runs inside ends when this function has been called so often."""
    module, _, name = target.rpartition(".")
    owner = pkgutil.resolve_name(module)
    real, calls = getattr(owner, name), itertools.count(1)

    def counted(*args: Any, **options: Any) -> Any:
        result = real(*args, **options)
        if next(calls) == after:
            raise Stop
        return result

    with mock.patch(target, counted):
        try:
            yield
        except Stop:
            return
    raise RuntimeError(f"{target} was not called {after} times")


def half_done(name: str, command: list[object], target: str, *, after: int) -> None:
    commands[name] = [[str(word) for word in command]]
    with stopped(target, after=after):
        run(name, *command, kept=False)


def make_texts() -> None:
    """Of a toy language, and the same things said in the file format of each task."""
    folder = Path("text")
    folder.mkdir()
    people, animals = ["Ann", "Ben", "Zoë"], {"cat": "milk", "dog": "bones", "owl": "mice", "horse": "hay"}
    lines, columns, conllu, roles = [], [], [], []
    for k in range(160):
        who, (animal, food) = people[k % 3], list(animals.items())[(k * 7 // 3) % 4]
        tail = [["today"], ["every", "day"], [], [f"name{k}"]][k % 4]
        words = [who, "gives", "the", animal, "some", food, *tail, "."]
        lines.append(" ".join(words[:-1]) + ".")
        if k % 10 == 0:
            tags = ["B-PER", "O", "O", "B-ANIMAL", "O", "B-FOOD", *["O"] * len(tail), "O"]
            columns.append("".join(f"{word} X {tag}\n" for word, tag in zip(words, tags, strict=True)))
            kinds = ["PROPN", "VERB", "DET", "NOUN", "DET", "NOUN", *["ADV"] * len(tail), "PUNCT"]
            rows = enumerate(zip(words, kinds, strict=True), 1)
            conllu.append("".join(f"{n}\t{w}\t_\t{t}" + "\t_" * 6 + "\n" for n, (w, t) in rows))
            tags = ["B-ARG0", "B-V", "B-ARG2", "I-ARG2", "B-ARG1", "I-ARG1", *["O"] * len(tail), "O"]
            roles.append(json.dumps({"words": words, "frames": [{"verb": 1, "tags": tags}]}, ensure_ascii=False))
    good, bad = ["a lovely film", "what a good day", "we liked it a lot"], ["a dull film", "what a bad day", "we left"]
    texts = [(text, label) for text in good for label in ["good"]] + [(text, "bad") for text in bad]
    pairs = [("A cat sleeps .", "An animal sleeps .", "yes"), ("A cat sleeps .", "A dog runs .", "no")]
    pairs += [("Ann drinks milk .", "Ann drinks .", "yes"), ("Ann drinks milk .", "Nobody drinks .", "no")]
    asked = []
    for who, what in (("Ann", "milk"), ("Ben", "hay"), ("Zoë", "mice")):
        passage = f"{who} came in the morning. {who} brought {what} for the animals."
        at = passage.index(what)
        question = {"id": who, "question": f"What did {who} bring?", "answers": [{"text": what, "answer_start": at}]}
        asked.append({"context": passage, "qas": [question]})
    documents = []
    for k, (who, her) in enumerate((("Ann", "her"), ("Ben", "his"), ("Zoë", "her"))):
        words = [who, "feeds", her, "cat", ".", "The", "cat", "likes", who, "."]
        marks = ["(0)", "-", "(1|(0)", "1)", "-", "(1", "1)", "-", "(0)", "-"]
        rows = [f"{n} {word} {mark}" for n, (word, mark) in enumerate(zip(words, marks, strict=True))]
        documents.append("\n".join([f"#begin document (d{k}); part 0", *rows[:5], "", *rows[5:], "#end document\n"]))
    trees = ["(3 (2 a) (3 (4 lovely) (2 film)))", "(1 (2 a) (1 (0 dull) (2 film)))", "(4 (2 we) (4 (2 like) (2 it)))"]
    files = {
        "corpus.txt": "\n".join(lines) + "\n",
        "some.txt": "\n".join(lines[:36]) + "\n",
        "more.txt": "Ben gives the owl some mice.\nA fox sees the owl.\n",
        "ner.txt": "\n".join(columns),
        "pos.conllu": "\n".join(conllu) + "\n",
        "classify.tsv": "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in texts),
        "sentiment.txt": "\n".join(trees) + "\n",
        "entail.tsv": "premise\thypothesis\tlabel\n" + "".join("\t".join(pair) + "\n" for pair in pairs),
        "qa.json": json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": asked}]}, ensure_ascii=False),
        "roles.jsonl": "\n".join(roles) + "\n",
        "coref.conll": "\n".join(documents),
        "owl.txt": "owl\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    os.utime(folder / "corpus.txt", ns=(TIME, TIME))
    # Long enough for two segments of an index; all but a few lines hold no word that is kept.
    long = [" ".join(["hay"] * 60) for k in range(5500)]
    for k in range(0, 5500, 250):
        long[k] = " ".join([people[k % 3], "sees", "the", "owl", *["some", "hay"][k % 2 :], *["today"] * (k // 250)])
    with lzma.open(folder / "long.txt.xz", "wt", encoding="utf-8", preset=9) as file:
        file.write("\n".join(long) + "\n")


def make_models(scratch: Path) -> None:
    """Each as a pre-training leaves it, then in the types and formats of `convert`."""

    def trained(name: str, **changes: Any) -> None:
        settings = {**NETWORK, **TRAINING, "steps": 80, **changes}
        where = ["text/corpus.txt", "-o", scratch / name, "--preset", "tiny", "--device", "cpu", "--quiet"]
        run(name, "pretrain", *where, *flags(settings), kept=False)
        shutil.copytree(scratch / name / "model", f"models/{name}")

    Path("models").mkdir()
    trained("float32")
    trained("adaptive", softmax="adaptive")
    trained("words", input="words", directions="forward")
    for dtype in ("float16", "bfloat16", "int8"):
        run(dtype, "convert", "models/float32", f"models/{dtype}", "--dtype", dtype, kept=False)
    run("official", "convert", "models/float32", "models/official", "--to", "official", kept=False)
    run("dictionary", "convert", HERE.parent / "manylangs" / "both", "models/dictionary", kept=False)
    shutil.make_archive("models/archive", "zip", "models/float32")
    for path in sorted(Path("models").iterdir()):
        elmo = Elmo.from_pretrained(path, device="cpu", dtype="float32")
        numbers[f"models/{path.name}"] = np.concatenate(elmo.encode_layers(SENTENCES), axis=1)
        with_softmax = elmo.pretrained.softmax is not None
        if with_softmax:
            options = ["-m", path, "--json", "--device", "cpu"]
            measured = json.loads(run(path.name, "perplexity", "text/corpus.txt", *options, kept=False))
            found = json.loads(run(path.name, "predict", "Ann gives the", "--top", 5, *options, kept=False))
            expected[f"models/{path.name}"] = {"perplexity": measured, "predict": found}
    for dtype in ("float32", "int8"):
        run(f"onnx/{dtype}", "export", "models/float32", "-o", f"onnx/{dtype}", "--dtype", dtype, kept=False)
        numbers[f"onnx/{dtype}"] = np.concatenate(OnnxElmo(f"onnx/{dtype}").encode_layers(SENTENCES), axis=1)
    elmo = Elmo.from_pretrained("models/float32", device="cpu")
    module = ElmoEmbedding(elmo.pretrained, mixes=(MixConfig(n_layers=3), MixConfig(n_layers=3, layer_norm="allennlp")))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for mix in module.mixes:
            for parameter in mix.parameters():
                parameter.copy_(torch.rand(parameter.shape, generator=generator))
    torch.save(module.state_dict(), "embedding.pt")
    for k, values in enumerate(module.eval()(SENTENCES).outputs):
        numbers[f"embedding/{k}"] = values.detach().numpy()


def make_static() -> None:
    table = distil_words(Elmo.from_pretrained("models/float32", device="cpu"), WORDS)
    Path("static").mkdir()
    table.save("static/table.safetensors")
    export_word2vec(table, "static/text.txt")
    export_word2vec(table, "static/binary.bin", binary=True)
    numbers["static"] = np.array(table.vectors)


QUESTION = "Ann came in the morning. Ann brought milk for the animals.\n\nWhat did Ann bring?"
TASKS: dict[str, tuple[str, list[str], dict[str, Any], str]] = {
    # name of the model: task, other flags, changed settings, text to apply it to
    "ner": ("ner", ["-m", "models/float32"], {"elmo_at": "both", "layers": 1}, "Ben gives the dog some bones. Zoë!"),
    "chunk": ("chunk", ["-m", "static/table.safetensors"], {"layers": 1}, "Ben gives the dog some hay."),
    "pos": ("pos", ["-m", "models/float32", "--with-encoder"], {"layers": 1}, "Ben gives the dog some hay."),
    "tag": ("tag", ["-m", "models/float32"], {"layers": 1, "fine_tune": True}, "Ben gives the dog some hay."),
    "taglm": ("taglm", ["-m", "models/float32"], {"vectors": "static/text.txt"}, "Ben gives the dog some hay."),
    "sentiment": ("sentiment", [], {"elmo_at": "none", "head_width": 8, **LONGER}, "a lovely day"),
    "classify": ("classify", ["-m", "models/float32"], {"head_width": 8, "average": 0.5, **LONGER}, "what a good film"),
    "entail": ("entail", ["-m", "models/float32"], LONGER, "A dog sleeps . ||| An animal sleeps ."),
    "qa": ("qa", ["-m", "models/float32"], LONGER, QUESTION),
    "roles": ("roles", ["-m", "models/float32"], {"predicate_dim": 3, "layers": 2}, "Ben *gives* the dog some hay."),
    "coref": (
        "coref",
        ["-m", "models/float32"],
        {"hidden": 6, "scorer": 8, "feature_dim": 3, "batch_size": 1, "epochs": 18, "patience": 18},
        "Ben feeds his cat. The cat likes Ben.",
    ),
}  # fmt: skip
DATA = {"ner": "ner.txt", "chunk": "ner.txt", "pos": "pos.conllu", "tag": "ner.txt", "taglm": "ner.txt"}
DATA |= {"sentiment": "sentiment.txt", "classify": "classify.tsv", "entail": "entail.tsv", "qa": "qa.json"}
DATA |= {"roles": "roles.jsonl", "coref": "coref.conll"}


def training(task: str, output: str | Path, more: list[str], settings: dict[str, Any]) -> list[object]:
    data = f"text/{DATA[task]}"
    files: list[object] = ["--train", data, "--dev", data, "-o", output, "--cache", "layers", "--device", "cpu"]
    return ["train", task, *files, *more, *flags({**TASK, **settings})]


def make_tasks(scratch: Path) -> None:
    for name, (task, more, settings, text) in TASKS.items():
        run(f"tasks/{name}", *training(task, f"tasks/{name}", more, settings))
        found = scratch / f"{name}.jsonl"
        run(name, "apply", f"tasks/{name}", text, "-o", found, "--device", "cpu", kept=False)
        data = f"text/{DATA[task]}"
        scores = run(name, "evaluate", f"tasks/{name}", data, "--json", "--device", "cpu", kept=False)
        records = [json.loads(line) for line in found.read_text(encoding="utf-8").splitlines()]
        expected[f"tasks/{name}"] = {"text": text, "data": data, "records": records, "scores": json.loads(scores)}
    shutil.rmtree("layers")
    task, more, settings, _ = TASKS["ner"]
    run("whole", *training(task, scratch / "whole", more, {**settings, "seed": 2}), kept=False)
    expected["unfinished/training"] = epochs_of(scratch / "whole")
    command = training(task, "unfinished/training", more, {**settings, "seed": 2})
    half_done("unfinished/training", command, "elmokit.tasks.train.Checkpoint.write", after=3)
    seeds = ["--seeds", "1", "--variants", "none,top", "--shares", "100", "--pictures", "svg"]
    cut = {"layers": 1, "epochs": 3}
    whole = ["ablate", *training(task, scratch / "cells", [*more, *seeds], cut)[1:]]
    run("cells", *whole, kept=False)
    cells = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((scratch / "cells/cells").iterdir())]
    expected["unfinished/ablation"] = [{name: cell[name] for name in ("variant", "scores", "epochs")} for cell in cells]
    command = ["ablate", *training(task, "unfinished/ablation", [*more, *seeds], cut)[1:]]
    half_done("unfinished/ablation", command, "elmokit.tasks.train.Checkpoint.write", after=5)


def epochs_of(folder: Path) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in epoch.items() if name != "seconds"}
        for epoch in json.loads((folder / "training.json").read_text(encoding="utf-8"))
    ]


def make_indexes(scratch: Path) -> None:
    for name, more in (("exact", []), ("graph", ["--precision", "float16", "--layers", "concat:1,2"])):
        run(f"index/{name}", "index", "text/some.txt", "-o", f"index/{name}", "-m", "models/float32", *more)
    Index.open("index/graph").make_graph(threads=1)
    asked = ["Zoë gives the owl some hay today.", "--word", "owl", "--jsonl", "-n", 5]
    for name in ("exact", "graph"):
        found = run(name, "neighbors", f"index/{name}", *asked, kept=False)
        expected[f"index/{name}"] = [json.loads(line) for line in found.splitlines()]
    command = ["index", "text/long.txt.xz", "-m", "models/float32", "--tokenized", "--words", "text/owl.txt"]
    run("whole", *command, "-o", scratch / "index", kept=False)
    found = run("whole", "neighbors", scratch / "index", *asked, kept=False)
    expected["unfinished/index"] = [json.loads(line) for line in found.splitlines()]
    command += ["-o", "unfinished/index"]
    half_done("unfinished/index", command, "elmokit.index.segment.SegmentWriter.write", after=1)
    for lock in Path().rglob("lock"):
        lock.unlink()  # an empty file


def make_runs(scratch: Path) -> None:
    """Trainings of models that stop at their second checkpoint; the undisturbed ones tell how they must end."""
    settings = {**TRAINING, "steps": 40, "valid_every": 20, "checkpoint_every": 10}
    quiet = ["--device", "cpu", "--quiet"]
    pretrain = ["pretrain", "text/corpus.txt", "--prepared", "unfinished/prepared", "--preset", "tiny", *quiet]
    pretrain += flags({**NETWORK, **settings})
    tune = ["finetune", "text/corpus.txt", "-m", "models/float32", *quiet, *flags({**settings, "learning_rate": 0.01})]
    fresh = [*tune, "--new-softmax", "--softmax-epochs", "2"]
    for name, command in (("pretraining", pretrain), ("finetuning", tune), ("new-softmax", fresh)):
        run(name, *command, "-o", scratch / name, kept=False)
        logs = [scratch / name / "log.jsonl", scratch / name / "softmax" / "log.jsonl"]
        steps = [json.loads(line) for log in logs if log.exists() for line in log.read_text().splitlines()]
        timed = ("time", "tokens_per_second")
        expected[f"unfinished/{name}"] = [{k: v for k, v in step.items() if k not in timed} for step in steps]
        elmo = Elmo.from_pretrained(scratch / name / "model", device="cpu")
        numbers[f"unfinished/{name}"] = np.concatenate(elmo.encode_layers(SENTENCES), axis=1)
        folder = Path("unfinished") / name
        half_done(str(folder), [*command, "-o", folder], "elmokit.pretrain.trainer.save_checkpoint", after=2)
        for board in [folder / "tensorboard", folder / "softmax" / "tensorboard"]:
            shutil.rmtree(board, ignore_errors=True)  # names the machine
        shutil.rmtree(folder / "corpus", ignore_errors=True)  # of fine-tuning: made anew, and the same
    manifest = Path("unfinished/prepared/manifest.json")
    manifest.write_text(manifest.read_text().replace(str(Path.cwd()), PLACE))


def make_vectors(scratch: Path) -> None:
    Path("vectors").mkdir()
    embed = ["embed", "text/more.txt", "-m", "models/float32", "--device", "cpu"]
    for ending, layers in (("h5", "all"), ("npz", "average"), ("safetensors", "all"), ("parquet", "all")):
        run(f"vectors/{ending}", *embed, "--layers", layers, "-o", f"vectors/out.{ending}")
    elmo = Elmo.from_pretrained("models/float32", device="cpu")
    for k, layers in enumerate(elmo.encode_layers(Path("text/more.txt"))):
        numbers[f"vectors/{k}"] = layers
    embed = ["embed", "text/corpus.txt", "-m", "models/float32", "--device", "cpu", "--batch-tokens", "16"]
    run("whole", *embed, "-o", scratch / "whole.npz", kept=False)
    with np.load(scratch / "whole.npz") as whole:
        numbers["unfinished/vectors"] = np.concatenate([whole[str(k)] for k in range(len(whole))])
    half_done(
        "unfinished/vectors", [*embed, "-o", "unfinished/vectors.npz"], "elmokit.store.spool.Spool.append", after=80
    )
    records = Path("unfinished/vectors.npz.partial/records.bin")
    records.write_bytes(records.read_bytes()[:-7])  # a kill leaves a torn record at the end


def make_all() -> None:
    assert elmokit.__version__ == "0.1.0", f"these are files of 0.1.0, not of {elmokit.__version__}"
    torch.set_num_threads(1)
    for path in HERE.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "make.py":
            path.unlink()
    os.chdir(HERE)
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        os.environ["ELMOKIT_CACHE"] = str(scratch / "cache")
        make_texts()
        make_models(scratch)
        make_static()
        Path("unfinished").mkdir()
        make_tasks(scratch)
        make_indexes(scratch)
        make_runs(scratch)
        make_vectors(scratch)
    expected["sentences"], expected["words"] = SENTENCES, WORDS
    for name, content in (("commands", commands), ("expected", expected)):
        text = json.dumps(content, indent=1, ensure_ascii=False)
        Path(f"{name}.json").write_text(text + "\n", encoding="utf-8")
    np.savez_compressed("expected.npz", **numbers)


if __name__ == "__main__":
    make_all()
