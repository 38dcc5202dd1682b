"""Writing with a language model: word by word, the LSTM's state carried, in either direction."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from elmokit.batch import index_words
from elmokit.chars import BOS, EOS
from elmokit.encoders.elmo.runner import Runner
from elmokit.errors import InputError
from elmokit.lm._output import OutputLayer
from elmokit.nn.bilm import BiLM, Direction, State
from elmokit.text import Sentence


@dataclass(frozen=True, slots=True)
class Sample:
    """A sentence as far as it was written, in reading order."""

    tokens: tuple[str, ...]  # what was given, and what was written after (forward) or before it (backward)
    written: tuple[str, ...]
    ended: bool  # the model reached the sentence's boundary; otherwise it ran out of words allowed


@dataclass(frozen=True, slots=True)
class Drawing:
    """How the next word is drawn from its distribution."""

    temperature: float = 1.0  # below 1 bolder on the likely words, 0 always the likeliest
    top_k: int | None = None  # only among the k likeliest

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise InputError(f"temperature is {self.temperature}; expected 0 (always the likeliest word) or more")
        if self.top_k is not None and self.top_k < 1:
            raise InputError(f"top_k is {self.top_k}; expected 1 or more, or None for the whole vocabulary")

    def draw(self, scores: Tensor, source: torch.Generator) -> int:
        """A word id from log scores (V,), -inf where a word is barred."""
        scores = scores.double().cpu()  # one generator, the same words on every device
        if self.temperature == 0:
            return int(scores.argmax())
        scores = (scores - scores.max()) / self.temperature  # the best stays 0, however small the temperature
        if self.top_k is not None and self.top_k < len(scores):
            values, kept = scores.topk(self.top_k)
            chosen = torch.multinomial(torch.softmax(values, dim=0), 1, generator=source)
            return int(kept[chosen])
        return int(torch.multinomial(torch.softmax(scores, dim=0), 1, generator=source))


class Writer:
    """One direction of a biLM on its own; its weights are views of the whole model's, so it takes no memory."""

    def __init__(self, runner: Runner, output: OutputLayer, direction: Direction) -> None:
        self.runner, self.output, self.direction = runner, output, direction
        r = runner.bilm.config.directions.index(direction)
        with torch.device("meta"):
            self.side = BiLM(replace(runner.bilm.config, directions=(direction,))).eval()
        for part, whole in zip(self.side.lstm, runner.bilm.lstm, strict=True):
            for name, weight in whole.named_parameters():
                setattr(part, name, nn.Parameter(weight[r : r + 1], requires_grad=False))

    @torch.inference_mode()
    def write(self, given: Sentence, *, n_words: int, drawing: Drawing, seed: int | None, unknown: bool) -> Sample:
        source = torch.Generator()
        if seed is None:
            source.seed()
        else:
            source.manual_seed(seed)
        forward = self.direction == "forward"
        stop, never = (self.output.end, BOS) if forward else (self.output.begin, EOS)
        barred = self.output.barred(never, unknown=unknown)
        hidden, state = self._read(self._start(given), None)
        written: list[str] = []
        ended = False
        while len(written) < n_words and not ended:
            scores = self.output.log_probs(hidden[None])[0]  # (V,)
            scores[barred] = -torch.inf
            drawn = drawing.draw(scores, source)
            ended = drawn == stop
            if not ended:
                written.append(self.output.vocabulary[drawn])
                hidden, state = self._read(self.runner.word_vectors(written[-1:])[2:], state)
        if forward:
            return Sample((*given.tokens, *written), tuple(written), ended)
        written.reverse()
        return Sample((*written, *given.tokens), tuple(written), ended)

    def _start(self, given: Sentence) -> Tensor:
        """The vectors of a boundary and the given words, in the order this side reads them. (n + 1, P)"""
        words, index, _ = index_words([given])
        bounded = self.runner.word_vectors(words)[torch.from_numpy(index[0])]  # (n + 2, P)
        return bounded[:-1] if self.direction == "forward" else bounded.flip(0)[:-1]

    def _read(self, vectors: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Token vectors (T, P), to what is known after the last of them (P,), and the state to go on from."""
        started = self.side.zero_state(1, like=vectors) if state is None else state
        layers, ended = self.side.run(vectors[None], (1,) * len(vectors), started)
        return layers[-1][0, -1], ended
