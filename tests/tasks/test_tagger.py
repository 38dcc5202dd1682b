"""Tagger networks: padding, forbidden sequences, places in the text, TagLM's wiring."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.errors import ConfigError, InputError
from elmokit.layers import LayerStack
from elmokit.tasks.labels import convert_tags, list_labels
from elmokit.tasks.tagging.network import (
    CrfTagger,
    TaggedExample,
    TaggedSentence,
    TaggerConfig,
    TaggerNetwork,
    TaglmNetwork,
    TextSpan,
)
from elmokit.tasks.task import Batch
from elmokit.tasks.words import WordFeaturesConfig, WordReader, WordVocabulary
from elmokit.text import Sentence, load_tokenizer

LABELS = list_labels(["X", "Y"], "IOBES")
SENTENCES = [Sentence.of(s.split()) for s in ("a b c d e f", "", "b", "c c a")]
VOCABULARY = WordVocabulary.of(SENTENCES)
FEATURES = WordFeaturesConfig(
    n_words=len(VOCABULARY), word_dim=4, char_dim=2, char_filters=((1, 3),), elmo_depth=2, elmo_width=6
)


def network(kind: type[CrfTagger], at: str, **changes: object) -> CrfTagger:
    torch.manual_seed(0)
    features = replace(FEATURES, elmo_at=at, elmo_layers="top" if kind is TaglmNetwork else "mix")
    return kind(TaggerConfig(LABELS, features, hidden=5, **changes)).eval()  # type: ignore[arg-type]


def batch(tagger: CrfTagger, examples: list[TaggedExample]) -> Batch[TaggedExample]:
    sentences = [example.sentence for example in examples]
    T = max(map(len, sentences)) or 1
    values, mask = torch.zeros(2, len(sentences), T, 6), torch.zeros(len(sentences), T, dtype=torch.bool)
    for k, sentence in enumerate(sentences):
        n = len(sentence)
        values[:, k, :n] = torch.randn(2, n, 6, generator=torch.Generator().manual_seed(n))
        mask[k, :n] = True
    stack = LayerStack(values, mask, ("0", "1"))
    reader = WordReader(VOCABULARY, tagger.config.features)
    return Batch(examples, (reader.batch(sentences, stack=stack),))


@pytest.mark.parametrize("at", ["none", "input", "output", "both"])
@pytest.mark.parametrize("kind", [TaggerNetwork, TaglmNetwork])
def test_neighbours_and_padding_change_nothing(kind: type[CrfTagger], at: str) -> None:
    if kind is TaglmNetwork and at in ("input", "both"):
        with pytest.raises(ConfigError, match="joins the output of the first"):
            network(kind, at)
        return
    tagger = network(kind, at)
    tags = [("B-X", "E-X", "O", "S-Y", "O", "S-X"), (), ("S-Y",), ("O", "B-Y", "E-Y")]
    examples = [TaggedExample(s, t, "IOBES") for s, t in zip(SENTENCES, tags, strict=True)]
    together, found = tagger.loss(batch(tagger, examples)), tagger.predict(batch(tagger, examples))
    alone = [tagger.loss(batch(tagger, [example])) for example in examples]
    torch.testing.assert_close(together, torch.stack(alone).mean())
    for example, prediction in zip(examples, found, strict=True):
        assert tagger.predict(batch(tagger, [example])) == [prediction]
        assert len(prediction.tags) == len(example.sentence)
        assert convert_tags(prediction.tags, "IOBES") == list(prediction.tags)  # what the scheme can write


@settings(max_examples=15)
@given(
    lengths=st.lists(st.integers(0, 7), min_size=1, max_size=5), at=st.sampled_from(["none", "input", "output", "both"])
)
def test_any_batch_scores_as_its_sentences_alone(lengths: list[int], at: str) -> None:
    tagger = network(TaggerNetwork, at)
    examples = [TaggedExample(Sentence.of("abcdefg"[:n]), ("O",) * n, "IOBES") for n in lengths]
    together = tagger(batch(tagger, examples).words[0])
    for k, example in enumerate(examples):
        n = len(example.sentence)
        torch.testing.assert_close(together[k, :n], tagger(batch(tagger, [example]).words[0])[0, :n])


def test_elmo_at_the_output_reaches_the_scores() -> None:
    tagger = network(TaggerNetwork, "output")
    words = batch(tagger, [TaggedExample(SENTENCES[0])]).words[0]
    assert words.stack is not None
    changed = replace(words, stack=replace(words.stack, values=words.stack.values + 1.0))
    assert not torch.allclose(tagger(words), tagger(changed))


def test_taglm_reads_the_top_layer_alone_and_through_the_second_lstm() -> None:
    tagger = network(TaglmNetwork, "output")
    assert not tagger.features.mixes
    words = batch(tagger, [TaggedExample(SENTENCES[0])]).words[0]
    assert words.stack is not None
    below, above = words.stack.values.clone(), words.stack.values.clone()
    below[0] += 1.0
    above[1, 0, 0] += 1.0  # at the first word only
    scores = tagger(words)
    assert torch.equal(scores, tagger(replace(words, stack=replace(words.stack, values=below))))
    changed = tagger(replace(words, stack=replace(words.stack, values=above)))
    assert not torch.allclose(scores[0, -1], changed[0, -1])  # carried to the last word: it is below an LSTM


def test_spans_lead_back_into_the_text() -> None:
    text = "It rained.  Jane Doe left Paris."
    sentence = load_tokenizer("english").split(text)[1]
    spans = TaggedSentence(sentence, ("B-PER", "E-PER", "O", "S-LOC", "O"), "IOBES").spans
    assert spans == [TextSpan(12, 20, "PER", "Jane Doe"), TextSpan(26, 31, "LOC", "Paris")]
    assert [text[span.start : span.end] for span in spans] == ["Jane Doe", "Paris"]
    words = TaggedSentence(Sentence.of(["a", "bc"]), ("X", "Y"), None).spans
    assert words == [TextSpan(0, 1, "X", "a"), TextSpan(2, 4, "Y", "bc")]


def test_what_does_not_fit_is_refused() -> None:
    tagger = network(TaggerNetwork, "none")
    with pytest.raises(InputError, match="'B-Z' is not among the tagger's: O, B-X, I-X"):
        tagger.config.ids(["O", "B-Z"])
    with pytest.raises(InputError, match="without labels"):
        tagger.loss(batch(tagger, [TaggedExample(SENTENCES[0])]))
    with pytest.raises(ConfigError, match="each once"):
        replace(tagger.config, labels=("O", "O"))
    with pytest.raises(ConfigError, match="lstm_layers is 0"):
        replace(tagger.config, lstm_layers=0)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_as_many_lstms_as_asked_for(layers: int) -> None:
    tagger = network(TaggerNetwork, "input", lstm_layers=layers)
    assert [lstm.input_size for lstm in tagger.lstms] == [tagger.features.width, 10, 10][:layers]
