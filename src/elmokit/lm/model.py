"""`LanguageModel`: what a biLM was trained to do. Every probability is over the full vocabulary."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

import torch
from torch import Tensor

from elmokit.batch import plan_batches
from elmokit.chars import BOS, EOS
from elmokit.encoders.batches import Placed
from elmokit.encoders.elmo.runner import Runner
from elmokit.encoders.places import batch_budget, pick_device, pick_dtype
from elmokit.errors import InputError
from elmokit.formats.given import Given, read_request
from elmokit.kernels import LstmState
from elmokit.lm._output import OutputLayer
from elmokit.lm.predictions import Candidate, Predictions, best_words, combine, only_blank, read_context, zipf_unigram
from elmokit.lm.sampling import Drawing, Sample, Writer
from elmokit.lm.scores import PerplexityReport, SentenceScore, parallel_streams
from elmokit.nn.bilm import Direction, State
from elmokit.nn.score import losses
from elmokit.text import Sentence, Tokenizer
from elmokit.weights.pretrained import Pretrained, choose_tokenizer

CACHE_WORDS = 65_536
SCORES_AT_ONCE = 2**24  # numbers held when many places are predicted

OneSentence = str | Sentence | Sequence[str]


class LanguageModel:
    """A biLM with its output layer.

    Methods over many sentences (`score`, `perplexity`) take what `Elmo.encode` takes: a string is one sentence, a list
    of strings is a list of sentences, a tokenised sentence is a list of tokens inside a list, a `Path` is a file.
    Methods about one sentence (`fill`, `next_words`, `sample` ...) take its text, or its tokens as a plain list.

    A forward-only or backward-only model works too: the direction it lacks is None where both are shown, and an error
    where it is all that was asked for.
    """

    def __init__(
        self,
        pretrained: Pretrained,
        *,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "float32",
        tokenizer: str | Tokenizer | None = None,
        allow_other_tokenizer: bool = False,
    ) -> None:
        self.pretrained = pretrained
        self.tokenizer = choose_tokenizer(pretrained, tokenizer, allow_other=allow_other_tokenizer)
        place = pick_device(device)
        at = place, pick_dtype(dtype, place)
        self.output = OutputLayer(pretrained, device=at[0], dtype=at[1])
        bilm = pretrained.build(device=at[0], dtype=at[1])
        codec = pretrained.codec.build(pretrained.config.tokens.max_characters)
        self.runner = Runner(bilm, codec, cache_words=CACHE_WORDS)
        self.unigram = zipf_unigram(len(self.output), specials=3).to(at[0])  # (V,)
        self.writers: dict[Direction, Writer] = {}
        if at[0].type == "cuda":  # threads may run in other streams than this one
            torch.cuda.current_stream(at[0]).synchronize()

    def __repr__(self) -> str:
        return f"LanguageModel({self.pretrained.source!r}, {len(self.vocabulary):,} words)"

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path | None = None,
        *,
        revision: str | None = None,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "float32",
        tokenizer: str | Tokenizer | None = None,
        allow_other_tokenizer: bool = False,
    ) -> "LanguageModel":
        """From a bundled name, a model folder or archive, or a hub id; None is the bundled English model."""
        from elmokit.weights import load_pretrained

        pretrained = load_pretrained(source, revision=revision)
        return cls(
            pretrained, device=device, dtype=dtype, tokenizer=tokenizer, allow_other_tokenizer=allow_other_tokenizer
        )

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The words that can be predicted, by id."""
        return self.output.vocabulary

    @property
    def directions(self) -> tuple[Direction, ...]:
        return self.pretrained.config.directions

    # Probabilities of sentences

    @overload
    def score(  # type: ignore[overload-overlap]  # a str is an iterable of str, and here it is one sentence
        self, sentences: str | Sentence, *, batch_tokens: int | None = None
    ) -> SentenceScore: ...
    @overload
    def score(self, sentences: Given, *, batch_tokens: int | None = None) -> list[SentenceScore]: ...
    def score(self, sentences: Given, *, batch_tokens: int | None = None) -> SentenceScore | list[SentenceScore]:
        """The log probability of every word, each sentence from zero state; a list, or one score for one string."""
        request = read_request(sentences, tokenizer=self.tokenizer)
        found = [score for _, score in sorted(self.scores(request.sentences, batch_tokens=batch_tokens), key=_position)]
        return found[0] if request.single else found

    def scores(
        self, sentences: Given, *, carried: bool = False, streams: int = 1, batch_tokens: int | None = None
    ) -> Iterator[tuple[int, SentenceScore]]:
        """(position, score) of each sentence as it is done, in bounded memory; positions count from 0.

        With `carried` the LSTM state goes on from sentence to sentence in the order given, as in training with carried
        state: the forward model has then read all sentences before, the backward model too (each sentence from its
        end, but the sentences in the same order). With `streams` above 1 the sentences are held in memory, cut into
        that many contiguous parts of equal size, and the parts run side by side, each from zero state: the result
        differs only by the few sentences after each cut.
        """
        given = read_request(sentences, tokenizer=self.tokenizer).sentences
        if carried:
            return self._carried(given, streams)
        return self._apart(given, batch_budget(batch_tokens, self.runner.device))

    def perplexity(
        self, sentences: Given, *, carried: bool = False, streams: int = 1, batch_tokens: int | None = None
    ) -> PerplexityReport:
        """How well a text is predicted, full softmax; sentences without a word (blank lines) are left out.

        Each sentence starts from zero state; for `carried` and `streams` see `scores`.
        """
        request = read_request(sentences, tokenizer=self.tokenizer)
        worded = (sentence for sentence in request.sentences if len(sentence))
        scores = self.scores(worded, carried=carried, streams=streams, batch_tokens=batch_tokens)
        return PerplexityReport.of(score for _, score in scores)

    def _apart(self, sentences: Iterator[Sentence], budget: int) -> Iterator[tuple[int, SentenceScore]]:
        for batch in plan_batches(sentences, batch_tokens=budget):
            for part, scored in self.runner.fitted(batch, lambda part: self._run(part, None)[0]):
                yield from zip((position for position, _ in part), scored, strict=True)

    def _carried(self, sentences: Iterator[Sentence], streams: int) -> Iterator[tuple[int, SentenceScore]]:
        state: State | None = None
        for batch in parallel_streams(sentences, streams):
            if state is not None:  # streams that have ended leave from the back
                state = tuple(LstmState(h[:, : len(batch)], c[:, : len(batch)]) for h, c in state)
            scored, state = self._run(batch, state)
            yield from zip((position for position, _ in batch), scored, strict=True)

    def _run(self, batch: Sequence[Placed], state: State | None) -> tuple[list[SentenceScore], State]:
        sentences = [sentence for _, sentence in batch]
        stack, ended = self.runner.layers(sentences, state=state)
        targets = self.output.targets(sentences)  # (B, T)
        nll = losses(stack, self.directions, self.output.softmax, torch.from_numpy(targets).to(self.runner.device))
        rows = {direction: (-values).tolist() for direction, values in nll.items()}
        scored = []
        for k, sentence in enumerate(sentences):
            n = len(sentence)
            forward, backward = (tuple(rows[d][k][: n + 1]) if d in rows else None for d in ("forward", "backward"))
            unknown = tuple((targets[k, 1 : n + 1] == self.output.unknown).tolist())
            scored.append(SentenceScore(sentence.tokens, forward, backward, unknown))
        return scored, ended

    # Words for a place

    def next_words(self, prefix: OneSentence, *, n: int = 10, unknown: bool = False) -> tuple[Candidate, ...]:
        """The likeliest words after a prefix; `</S>` among them means that the sentence ends there.

        Probabilities are among the words that may follow: `<S>` never does, and `<UNK>`, any word outside the
        vocabulary, is left out unless asked for with `unknown`.
        """
        self._need("forward", "the next word")
        sentence = read_context(prefix, self.tokenizer)
        scores = self.output.log_probs(self._read(sentence)["forward"][[len(sentence)]])[0]  # (V,)
        return best_words(scores, self.vocabulary, n=n, barred=self.output.barred(BOS, unknown=unknown))

    def previous_words(self, suffix: OneSentence, *, n: int = 10, unknown: bool = False) -> tuple[Candidate, ...]:
        """The likeliest words before a suffix that runs to the sentence's end; `<S>` means that it begins there."""
        self._need("backward", "the previous word")
        scores = self.output.log_probs(self._read(read_context(suffix, self.tokenizer))["backward"][[1]])[0]  # (V,)
        return best_words(scores, self.vocabulary, n=n, barred=self.output.barred(EOS, unknown=unknown))

    def fill(self, sentence: OneSentence, *, n: int = 10, unknown: bool = False) -> Predictions:
        """The likeliest words for the one blank `___`, from the left, from the right, and from both sides together.

        Together they are proportional to p_forward(w | left) * p_backward(w | right) / p(w), over the whole vocabulary;
        p(w), the frequency of the word, is taken from its rank in the vocabulary (see `predictions.combine`).
        """
        read = read_context(sentence, self.tokenizer)
        return self._places(read, [only_blank(read)], n=n, barred=[self.output.barred(BOS, EOS, unknown=unknown)])[0]

    def substitutes(self, sentence: OneSentence, position: int, *, n: int = 10) -> Predictions:
        """Words that could stand in the place of token `position`: as if it were a blank, and never the word itself."""
        read = read_context(sentence, self.tokenizer)
        if not -len(read) <= position < len(read):
            raise InputError(f"position {position} asked for, but the sentence has tokens 0 to {len(read) - 1}")
        return self._substitutes(read, [position % len(read)], n)[0]

    def substitutes_everywhere(self, sentence: OneSentence, *, n: int = 10) -> list[Predictions]:
        """`substitutes` of every token, for one run of the model."""
        read = read_context(sentence, self.tokenizer)
        return self._substitutes(read, range(len(read)), n)

    def place_scores(self, sentence: OneSentence) -> dict[Direction, Tensor]:
        """The log probability of every word of the vocabulary for each token's place, from each side. (T, V) each"""
        read = read_context(sentence, self.tokenizer)
        hidden = self._read(read)
        seen = {"forward": slice(0, len(read)), "backward": slice(2, len(read) + 2)}  # not the token itself
        return {direction: self.output.log_probs(values[seen[direction]]) for direction, values in hidden.items()}

    def _substitutes(self, sentence: Sentence, positions: Sequence[int], n: int) -> list[Predictions]:
        own = self.output.numbers(sentence.tokens)
        barred = [[*self.output.barred(BOS, EOS), own[k]] for k in positions]
        return self._places(sentence, positions, n=n, barred=barred)

    def _places(
        self, sentence: Sentence, positions: Sequence[int], *, n: int, barred: Sequence[Sequence[int]]
    ) -> list[Predictions]:
        """Neither direction sees the token itself: forward is asked one position before it, backward one after."""
        hidden = self._read(sentence)
        found: list[Predictions] = []
        few = max(1, SCORES_AT_ONCE // len(self.output))
        for start in range(0, len(positions), few):
            at = torch.tensor(positions[start : start + few], device=self.runner.device)
            forward = self.output.log_probs(hidden["forward"][at]) if "forward" in hidden else None  # (n, V)
            backward = self.output.log_probs(hidden["backward"][at + 2]) if "backward" in hidden else None  # (n, V)
            both = None
            if forward is not None and backward is not None:
                both = combine(forward, backward, self.unigram)  # (n, V)
            for k in range(len(at)):
                forward_words, backward_words, both_words = (
                    None if s is None else best_words(s[k], self.vocabulary, n=n, barred=barred[start + k])
                    for s in (forward, backward, both)
                )
                found.append(Predictions(forward_words, backward_words, both_words))
        return found

    def _read(self, sentence: Sentence) -> dict[Direction, Tensor]:
        """The top layer of one sentence by direction, boundaries included. (n + 2, P) each"""
        stack, _ = self.runner.layers([sentence])
        return dict(zip(self.directions, stack.values[-1, 0].chunk(len(self.directions), dim=-1), strict=True))

    # Sampling

    def sample(
        self,
        given: OneSentence = "",
        *,
        direction: Direction = "forward",
        n_words: int = 50,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int | None = None,
        unknown: bool = False,
    ) -> Sample:
        """Up to `n_words` words after the given prefix, or with direction "backward" before the given suffix.

        Stops where the model ends (or begins) the sentence. The same seed gives the same words.
        """
        self._need(direction, f"{direction} sampling")
        writer = self.writers.get(direction) or Writer(self.runner, self.output, direction)
        self.writers[direction] = writer
        sentence = read_context(given, self.tokenizer)
        drawing = Drawing(temperature, top_k)
        return writer.write(sentence, n_words=n_words, drawing=drawing, seed=seed, unknown=unknown)

    def _need(self, direction: Direction, purpose: str) -> None:
        if direction not in self.directions:
            have = " and ".join(self.directions)
            raise InputError(
                f"{purpose} needs a {direction} language model, but {self.pretrained.source or 'this model'} reads "
                f"{have} only; load a model trained in both directions"
            )


def _position(placed: tuple[int, SentenceScore]) -> int:
    return placed[0]
