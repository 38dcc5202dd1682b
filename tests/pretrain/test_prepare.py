import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from elmokit.errors import ConfigError, ElmokitError, FormatError, InputError
from elmokit.pretrain.corpus._shards import ShardedCorpus
from elmokit.pretrain.corpus.lexicon import SPECIALS, Vocabulary
from elmokit.pretrain.corpus.manifest import PreparedCorpus
from elmokit.pretrain.corpus.prepare import CorpusPlan, PrepareProgress, prepare
from elmokit.pretrain.corpus.text import Corpus
from elmokit.text import load_tokenizer

SPACES = load_tokenizer("whitespace")
SPACES_NOW = (SPACES.name, SPACES.version)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Some 40 kB of Zipfian words in several scripts, a blank line here and there."""
    random.seed(5)
    words = [*(f"w{k}" for k in range(400)), *(f"語{k}" for k in range(100)), "é" * 30]
    weights = [1 / (k + 1) for k in range(len(words))]
    lines = [" ".join(random.choices(words, weights, k=random.randint(0, 12))) for _ in range(1500)]
    path = tmp_path / "text.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def corpus_of(*paths: Path) -> Corpus:
    return Corpus(paths=paths, tokenizer=SPACES)


def words_of(prepared: PreparedCorpus, part: ShardedCorpus) -> list[list[str]]:
    return [prepared.lexicon.words(sentence) for sentence in part]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_nothing_is_lost_and_all_is_counted(text: Path, tmp_path: Path) -> None:
    prepared = prepare(corpus_of(text), tmp_path / "out", CorpusPlan(vocab_size=203), workers=1)
    lines = text.read_text(encoding="utf-8").split("\n")[:-1]
    given = [line.split() for line in lines if line.split()]
    train, heldout = words_of(prepared, prepared.train), words_of(prepared, prepared.heldout)
    assert sorted(train + heldout) == sorted(given)
    rest = iter(given)
    assert all(sentence in rest for sentence in train)  # in corpus order
    counts = Counter(word for sentence in train for word in sentence)
    ranked = sorted(counts, key=lambda word: (-counts[word], word.encode()))
    assert prepared.vocabulary.words == (*SPECIALS, *ranked[:200])
    assert prepared.lexicon.first_words(3 + len(ranked)) == [*SPECIALS, *ranked]
    unseen = {word for sentence in heldout for word in sentence} - set(counts)
    assert set(prepared.lexicon.first_words(len(prepared.lexicon))[3 + len(ranked) :]) == unseen
    report = prepared.report
    assert (report.lines, report.empty_lines) == (1500, sum(not line.split() for line in lines))
    assert (report.sentences, report.tokens, report.types) == (len(train), counts.total(), len(counts))
    assert report.vocabulary == 203
    assert report.coverage == sum(counts[word] for word in ranked[:200]) / counts.total()
    assert (report.overlong_types, report.overlong_tokens) == (1, counts["é" * 30])
    assert (report.heldout_sentences, report.heldout_tokens) == (len(heldout), sum(map(len, heldout)))
    known = sum(word in prepared.vocabulary for sentence in heldout for word in sentence)
    assert report.heldout_coverage == known / report.heldout_tokens
    assert 0.03 < len(heldout) / len(given) < 0.07


def test_workers_blocks_and_spilling_change_nothing(text: Path, tmp_path: Path) -> None:
    plan = CorpusPlan(shard_tokens=3000)
    prepare(corpus_of(text), tmp_path / "one", plan, workers=1)
    prepare(corpus_of(text), tmp_path / "two", plan, workers=2, block_bytes=700, most_words=50)
    prepare(corpus_of(text), tmp_path / "three", plan, workers=1, block_bytes=5000, most_words=7)
    one = contents(tmp_path / "one")
    assert sum(name.endswith(".tokens") for name in one) > 3
    assert contents(tmp_path / "two") == one
    assert contents(tmp_path / "three") == one


def test_ties_are_broken_by_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("z é \uffee \U0001f600 Z a a\n", encoding="utf-8")
    prepared = prepare(corpus_of(tmp_path / "a.txt"), tmp_path / "out", CorpusPlan(heldout=0.0))
    assert prepared.vocabulary.words[3:] == ("a", "Z", "z", "é", "\uffee", "\U0001f600")
    assert prepare(
        corpus_of(tmp_path / "a.txt"), tmp_path / "out2", CorpusPlan(heldout=0.0, min_count=2)
    ).vocabulary.words[3:] == ("a",)


def refuse(progress: PrepareProgress) -> None:
    raise AssertionError(f"built again: {progress}")


def test_second_run_reuses_the_first(text: Path, tmp_path: Path) -> None:
    first = prepare(corpus_of(text), tmp_path / "out", workers=1)
    again = prepare(corpus_of(text), tmp_path / "out", progress=refuse)
    assert again.fingerprint == first.fingerprint == PreparedCorpus.open(tmp_path / "out").fingerprint
    stages: list[str] = []
    for changed in (CorpusPlan(min_count=2), CorpusPlan(heldout=0.1), CorpusPlan(vocabulary=first.vocabulary)):
        prepare(corpus_of(text), tmp_path / "out", changed, workers=1, progress=lambda p: stages.append(p.stage))
        assert stages[-1] == "writing"
        stages.clear()
    with text.open("a") as stream:
        stream.write("one more line\n")
    newer = prepare(corpus_of(text), tmp_path / "out", workers=1)
    assert newer.report.lines == 1501
    assert newer.fingerprint != first.fingerprint


def test_texts_are_prepared_anew_unless_named(tmp_path: Path) -> None:
    def texts() -> Iterator[str]:
        yield from ("one two", "three")

    plan = CorpusPlan(heldout=0.0)
    prepare(Corpus(texts=texts(), tokenizer=SPACES), tmp_path, plan)
    with pytest.raises(AssertionError, match="built again"):
        prepare(Corpus(texts=texts(), tokenizer=SPACES), tmp_path, plan, progress=refuse)
    named = Corpus(texts=texts(), tokenizer=SPACES, texts_name="v1")
    assert prepare(named, tmp_path, plan).report.tokens == 3
    prepare(named, tmp_path, plan, progress=refuse)


def test_interruption_leaves_nothing_that_looks_complete(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for stage in ("reading", "sorting", "writing"):

        def stop(progress: PrepareProgress, stage: str = stage) -> None:
            if progress.stage == stage:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            prepare(corpus_of(text), out, workers=1, progress=stop)
        assert os.listdir(out) == []
    with pytest.raises(InputError, match="holds no finished corpus"):
        PreparedCorpus.open(out)
    # What a kill would leave: a half-made folder, and finished shards without a manifest.
    (out / "building").mkdir()
    (out / "building" / "train-00000.tokens").write_bytes(b"junk")
    (out / "train-00007.tokens").write_bytes(b"junk")
    prepare(corpus_of(text), out, workers=1)
    assert not (out / "building").exists()
    assert not (out / "train-00007.tokens").exists()


def test_failed_rebuild_keeps_the_old_corpus(text: Path, tmp_path: Path) -> None:
    prepare(corpus_of(text), tmp_path / "out", workers=1)
    before = contents(tmp_path / "out")
    (tmp_path / "bad.jsonl").write_text('{"text": "fine"}\n{"oops"\n')
    with pytest.raises(FormatError, match=r"bad\.jsonl, line 2: not valid JSON"):
        prepare(corpus_of(tmp_path / "bad.jsonl"), tmp_path / "out", workers=1)
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize("name", ["train-00000.tokens", "lexicon.text", "lexicon.starts", "vocab.txt"])
def test_damage_is_named(text: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    prepare(corpus_of(text), out, workers=1)
    path = out / name
    data = path.read_bytes()
    path.write_bytes(data[:-4])
    with pytest.raises(FormatError, match=rf"{name}: has {len(data) - 4} bytes, expected {len(data)}"):
        prepare(corpus_of(text), out, workers=1)
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    prepared = prepare(corpus_of(text), out, workers=1)
    with pytest.raises(FormatError, match=rf"{name}: .*is damaged; delete"):
        _ = prepared.train[0], prepared.lexicon, prepared.vocabulary


@pytest.mark.parametrize("manifest", ["{", "[]", '{"format_version": 0}'])
def test_foreign_manifest(text: Path, tmp_path: Path, manifest: str) -> None:
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(FormatError, match="prepare the corpus again"):
        PreparedCorpus.open(tmp_path)
    assert prepare(corpus_of(text), tmp_path, workers=1).report.lines == 1500


def test_explicit_heldout_text_never_enters_the_vocabulary(text: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("w0 newcomer\n\nw1\n")
    other = corpus_of(tmp_path / "other.txt")
    prepared = prepare(corpus_of(text), tmp_path / "out", CorpusPlan(heldout=other), workers=1)
    assert words_of(prepared, prepared.heldout) == [["w0", "newcomer"], ["w1"]]
    assert len(prepared.train) + 1 + prepared.report.empty_lines == prepared.report.lines - 1
    assert "newcomer" not in prepared.vocabulary
    assert prepared.report.heldout_coverage == 2 / 3
    prepare(corpus_of(text), tmp_path / "out", CorpusPlan(heldout=other), progress=refuse)


def test_fixed_vocabulary_comes_first(text: Path, tmp_path: Path) -> None:
    fixed = Vocabulary([*SPECIALS, "absent", "w7", "w0"])
    plan = CorpusPlan(vocabulary=fixed)
    prepared = prepare(corpus_of(text), tmp_path / "out", plan, workers=1, most_words=40, block_bytes=2000)
    assert prepared.vocabulary.words == fixed.words
    assert prepared.lexicon.first_words(7) == [*fixed.words, "w1"]
    assert prepared.report.vocabulary == 6


def test_bad_bytes_long_lines_and_mixed_inputs_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9 au lait\n\n" + b"long " * 1_000_000)
    (tmp_path / "b.jsonl").write_text('{"text": "one\\n\\ntwo \\ud800"}\n')
    prepared = prepare(corpus_of(tmp_path), tmp_path / "out", CorpusPlan(heldout=0.0), workers=1)
    report = prepared.report
    assert (report.bad_bytes, report.empty_lines, report.cut_lines) == (2, 2, 1)
    assert report.tokens == 3 + 1_000_000 + 3
    assert prepared.lexicon.counts[prepared.vocabulary.places["long"]] == 1_000_000


def test_progress_tells_how_far(text: Path, tmp_path: Path) -> None:
    seen: list[PrepareProgress] = []
    prepared = prepare(corpus_of(text), tmp_path / "out", workers=1, block_bytes=5000, progress=seen.append)
    reading = [p for p in seen if p.stage == "reading"]
    assert len(reading) > 5
    assert reading[-1][1:] == (text.stat().st_size,) * 2 + (prepared.report.tokens + prepared.report.heldout_tokens,)
    assert [p.done for p in reading] == sorted(p.done for p in reading)


def test_manifest_says_what_it_was_made_of(text: Path, tmp_path: Path) -> None:
    prepared = prepare(corpus_of(text), tmp_path / "out", workers=1)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert prepared.tokenizer == (SPACES.name, SPACES.version)
    assert manifest["identity"]["text"]["files"][0]["bytes"] == text.stat().st_size
    assert set(manifest["files"]) | {"manifest.json"} == set(os.listdir(tmp_path / "out"))


def test_unusable_requests(text: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(InputError, match=r"no words to train on \(2 lines, 2 of them empty"):
        prepare(corpus_of(tmp_path / "empty.txt"), tmp_path / "out")
    with pytest.raises(ElmokitError, match=r"text\.txt: the corpus cannot be prepared there: .*choose another folder"):
        prepare(corpus_of(text), text)
    with pytest.raises(ConfigError, match="vocab_size = 3"):
        CorpusPlan(vocab_size=3)
    with pytest.raises(ConfigError, match="fixed vocabulary"):
        CorpusPlan(min_count=2, vocabulary=Vocabulary(SPECIALS))
    with pytest.raises(ConfigError, match="vocab_size = 5, but 6 words are fixed"):
        CorpusPlan(vocab_size=5, vocabulary=Vocabulary([*SPECIALS, "a", "b", "c"]))


def test_text_of_another_tokenizer_version_is_prepared_again(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(corpus_of(text), tmp_path / "out", workers=1)
    assert prepare(corpus_of(text), tmp_path / "out", workers=1, progress=refuse).tokenizer == SPACES_NOW
    monkeypatch.setattr(type(SPACES), "version", SPACES.version + 1)
    again = prepare(corpus_of(text), tmp_path / "out", workers=1)
    assert again.tokenizer.version == SPACES_NOW[1] + 1
