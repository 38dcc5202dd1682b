"""Eight threads that call one object at once, and the objects that several tests call so."""

import random
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import models
from elmokit import Tagger
from elmokit.encoders import Elmo
from elmokit.kernels.cpu.c import c_library
from elmokit.lm import LanguageModel
from elmokit.tasks.run import train_task
from elmokit.tasks.setup import load_setup
from elmokit.tasks.tagging.task import NER, TaggedExample
from elmokit.text import Sentence
from elmokit.weights.pretrained import SoftmaxTensors

THREADS = 8
NEAR = 1e-5  # what torch's kernels may make of a batch
WORDS = [f"w{k}" for k in range(300)]
VOCABULARY = ("<S>", "</S>", "<UNK>", *WORDS[:60])
MODEL = models.tiny(models.tiny_options(lstm={"dim": 16, "projection_dim": 8}))
IN_C = c_library() is not None


def jobs(n: int = 16) -> list[list[list[str]]]:
    """Batches of one to twelve sentences of no to thirty words."""
    draw = random.Random(1)
    return [
        [[draw.choice(WORDS) for _ in range(draw.choice([0, 1, 4, 30]))] for _ in range(draw.choice([1, 2, 12]))]
        for _ in range(n)
    ]


def from_threads(call: Callable[[Any], Any], given: Sequence[Any], *, threads: int = THREADS) -> list[list[Any]]:
    """What each thread gets for everything given, all begun at once, each in an order of its own.

    Threads of Python change over every 10 microseconds meanwhile, instead of every 5 milliseconds.
    """
    start = threading.Barrier(threads)
    found: list[list[Any]] = [[None] * len(given) for _ in range(threads)]
    errors: list[BaseException] = []

    def work(thread: int) -> None:
        order = random.Random(thread).sample(range(len(given)), len(given))
        start.wait()
        try:
            for k in order:
                found[thread][k] = call(given[k])
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    if errors:
        raise errors[0]
    return found


def check(new: Callable[[], Callable[[Any], Any]], given: Sequence[Any], *, near: float = NEAR) -> None:
    """`new()` makes an object and returns the call under test."""
    alone = new()
    expected = [alone(one) for one in given]
    shared = new()
    for found in from_threads(shared, given):
        for got, want in zip(found, expected, strict=True):
            same(got, want, near=near)
    for one, want in zip(given, expected, strict=True):  # and it is not spoilt for those who come later
        same(shared(one), want, near=near)


def same(got: Any, want: Any, *, near: float) -> None:
    """Equal, numbers to `near`; 0 is bit for bit."""
    if is_dataclass(want) and not isinstance(want, Sentence):
        got, want = asdict(got), asdict(want)
    if isinstance(want, dict):
        assert got.keys() == want.keys()
        for key in want:
            same(got[key], want[key], near=near)
    elif isinstance(want, list | tuple):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            same(a, b, near=near)
    elif isinstance(want, np.ndarray | torch.Tensor | float):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=0, atol=near)
    else:
        assert got == want


def language_model_calls(device: str) -> Callable[[Any], Any]:
    source = torch.Generator().manual_seed(5)
    softmax = SoftmaxTensors(
        torch.randn(len(VOCABULARY), 8, generator=source), torch.randn(len(VOCABULARY), generator=source)
    )
    pretrained = replace(MODEL.pretrained, vocabulary=VOCABULARY, softmax=softmax)
    lm = LanguageModel(pretrained, device=device)

    def call(batch: list[list[str]]) -> Any:
        words = [token for tokens in batch for token in tokens][:9]
        blank = lm.fill([*words[:4], "___", *words[4:]], n=3)
        drawn = [lm.sample(words, direction=way, n_words=6, seed=3) for way in ("forward", "backward")]
        return lm.score(batch), lm.next_words(words, n=3), blank, [sample.tokens for sample in drawn]

    return call


def save_tagger(folder: Path) -> None:
    tags = ("B-X", "O", "B-Y", "I-Y")
    examples = [
        TaggedExample(Sentence.of(tokens[:4]), tags[: len(tokens)], "IOB2")
        for batch in jobs()
        for tokens in batch
        if len(tokens) == 4
    ]
    small = {"word_dim": 4, "char_dim": 2, "char_filters": "2:4", "hidden": 4, "layers": 1, "epochs": 1}
    setup = load_setup(NER, flags={**small, "elmo_at": "both"})
    encoder = Elmo(MODEL.pretrained, device="cpu", cache_words=40)
    train_task(NER, setup, examples, examples[:4], encoder=encoder, device="cpu").save(folder)


def tagger_calls(folder: Path, device: str) -> Callable[[Any], Any]:
    elmo = Elmo(MODEL.pretrained, device=device, cache_words=20)
    tagger = Tagger.from_pretrained(folder, encoder=elmo, device=device)
    return lambda batch: [
        [found.tags for found in part] for part in tagger.predict([" ".join(tokens) for tokens in batch])
    ]
