"""Maps between models: a map that was there is found again, stored, applied, and refused where it does not belong."""

import json
from pathlib import Path

import numpy as np
import pytest

import models
from elmokit.analysis.align import AlignConfig, align_anchors, csls, identical_words, read_word_list
from elmokit.analysis.anchors import Anchors, index_anchors, text_anchors
from elmokit.analysis.retrieval import retrieve_tokens
from elmokit.encoders import Alignment, Elmo, load_encoder
from elmokit.errors import FormatError, InputError
from elmokit.index import Index, IndexSettings
from elmokit.text import Sentence
from elmokit.weights import save_pretrained

WORDS = tuple(f"w{k}" for k in range(300))


def anchors(vectors: np.ndarray, words: tuple[str, ...] = WORDS, model: str = "m") -> Anchors:
    return Anchors(words, vectors.astype(np.float32), model, model, ("0", "1"))


def rotated(vectors: np.ndarray, *, noise: float, seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Each layer turned, stretched, shifted, and disturbed; and the turns."""
    rng = np.random.default_rng(seed)
    turns = [np.linalg.qr(rng.normal(size=(vectors.shape[2],) * 2))[0] for _ in range(vectors.shape[1])]
    made = [3 * vectors[:, k] @ turn + k + 1 for k, turn in enumerate(turns)]
    return np.stack(made, axis=1) + noise * rng.normal(size=vectors.shape), turns


def some_vectors(seed: int = 0, *, width: int = 12) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(len(WORDS), 2, width)) * np.linspace(2, 0.5, width) + 1


class TestMaps:
    def test_the_map_that_was_there_is_found(self) -> None:
        x = some_vectors()
        y, turns = rotated(x, noise=0.0, seed=1)
        found = align_anchors(anchors(x), anchors(y, model="n"))
        np.testing.assert_allclose(found.alignment.maps, turns, atol=1e-4)
        np.testing.assert_allclose(found.alignment.scales, 3, rtol=1e-4)
        mapped = found.alignment.apply(x.astype(np.float32).swapaxes(0, 1))
        np.testing.assert_allclose(mapped, y.swapaxes(0, 1), atol=1e-3)
        assert all(one.at_1 == 1 for one in found.translations.values())
        assert found.translations.keys() == {"0", "1", "all"}
        assert found.translations["all"].words == 60

    def test_held_out_words_are_not_in_the_seed(self) -> None:
        """Wrong partners for all words of the test change nothing but the test."""
        x = some_vectors()
        y, _ = rotated(x, noise=0.3, seed=2)
        right = list(zip(WORDS, WORDS, strict=True))
        wrong = [(a, WORDS[(k + 7) % 300]) if k % 5 == 2 else (a, b) for k, (a, b) in enumerate(right)]
        config = AlignConfig(rounds=0)
        one, other = (align_anchors(anchors(x), anchors(y), pairs, config=config) for pairs in (right, wrong))
        assert np.array_equal(one.alignment.maps, other.alignment.maps)
        assert one.translations["all"].at_1 > 0.9
        assert other.translations["all"].at_1 < 0.1

    def test_pairs_to_test_on_are_not_in_the_seed(self) -> None:
        x = some_vectors()
        y, _ = rotated(x, noise=0.3, seed=2)
        wrong = [(WORDS[k], WORDS[(k + 7) % 300]) for k in range(0, 300, 3)]
        tested = [(word, word) for word in WORDS[::3]]
        config = AlignConfig(rounds=0, test=0)
        right = [(word, word) for word in WORDS]
        one, other = (
            align_anchors(anchors(x), anchors(y), pairs, test_pairs=[*tested, ("nothing", "w1")], config=config)
            for pairs in (right, [*right, *wrong])
        )
        assert np.array_equal(one.alignment.maps, other.alignment.maps)
        assert one.alignment.about.seed_pairs == 200
        assert one.translations == {}
        assert one.listed["all"].words == 100
        assert one.listed["all"].at_1 > 0.9

    def test_refinement_mends_a_poor_seed(self) -> None:
        x = some_vectors(width=24)
        y, _ = rotated(x, noise=0.25, seed=3)
        rng = np.random.default_rng(4)
        pairs = [(WORDS[k], WORDS[k] if rng.random() < 0.5 else WORDS[rng.integers(300)]) for k in range(0, 300, 3)]
        seeds_only = align_anchors(anchors(x), anchors(y), pairs, config=AlignConfig(rounds=0, test=0))
        refined = align_anchors(anchors(x), anchors(y), pairs, config=AlignConfig(rounds=10, test=0))
        assert refined.alignment.about.rounds > 0

        def precision(alignment: Alignment) -> float:
            mapped = alignment.apply(x.astype(np.float32).swapaxes(0, 1))[0]
            return float((((mapped[:, None] - y[None, :, 0]) ** 2).sum(axis=2).argmin(axis=1) == np.arange(300)).mean())

        assert precision(refined.alignment) > max(precision(seeds_only.alignment), 0.9)

    def test_words_that_strong_directions_hide_are_found_in_the_common_space(self) -> None:
        """A few large directions that the models do not share; the words differ in the others."""
        rng = np.random.default_rng(6)
        shared = rng.normal(size=(300, 2, 20))
        x, y = (np.concatenate([shared + 0.3 * rng.normal(size=shared.shape), own], axis=2) for own in
                6 * rng.normal(size=(2, 300, 2, 4)))  # fmt: skip
        found = align_anchors(anchors(x), anchors(y), config=AlignConfig(rounds=0))
        assert found.translations["common"].at_1 > 0.95
        assert found.translations["all"].at_1 < 0.5
        assert found.best == "common"
        lexicon = found.lexicon()
        assert [entry.word for entry in lexicon] == list(WORDS)
        assert np.mean([entry.word == entry.translation for entry in lexicon]) > 0.95

    def test_the_lexicon_goes_by_the_layer_that_finds_most(self) -> None:
        """The first layer has nothing in common, as that of spelling between two languages."""
        x = some_vectors(width=24)
        y, _ = rotated(x, noise=0.3, seed=3)
        y[:, 0] = 5 * np.random.default_rng(9).normal(size=y[:, 0].shape)
        found = align_anchors(anchors(x), anchors(y), config=AlignConfig(rounds=0))
        assert found.best in ("1", "common")
        assert np.mean([entry.word == entry.translation for entry in found.lexicon()]) > 0.9
        assert found.translations["all"].at_1 < found.translations[found.best].at_1

    def test_with_too_few_pairs_to_judge_it_there_is_no_common_space(self) -> None:
        x = some_vectors()
        y, _ = rotated(x, noise=0.2, seed=7)
        found = align_anchors(anchors(x), anchors(y), [(word, word) for word in WORDS[:40]])
        assert found.translations.keys() == {"0", "1", "all"}
        assert np.mean([entry.word == entry.translation for entry in found.lexicon()]) > 0.5

    def test_another_width(self) -> None:
        x, y = some_vectors(width=8), some_vectors(seed=5, width=12)
        found = align_anchors(anchors(x), anchors(y))
        assert found.alignment.apply(x.astype(np.float32).swapaxes(0, 1)).shape == (2, 300, 12)
        found.alignment.check("here")

    def test_csls_takes_hubs_down(self) -> None:
        queries = np.eye(3, dtype=np.float32)[:2]
        hub = np.array([0.7, 0.7, 0.0]) / np.linalg.norm([0.7, 0.7])
        keys = np.array([[0.68, 0.0, 0.733], [0.0, 0.68, 0.733], hub], dtype=np.float32)
        assert (queries @ keys.T).argmax(axis=1).tolist() == [2, 2]
        assert csls(queries, keys, neighbours=2).argmax(axis=1).tolist() == [0, 1]

    def test_too_few_pairs_or_other_layers(self) -> None:
        x = some_vectors()
        with pytest.raises(InputError, match=r"0 pairs of the seed \(1 given\)"):
            align_anchors(anchors(x), anchors(x), [("nothing", "w1")])
        with pytest.raises(InputError, match="2 layers, m 1"):
            align_anchors(anchors(x), anchors(x[:, :1]))
        with pytest.raises(InputError, match="all pairs are held out"):
            AlignConfig(test=1.0)


class TestWordLists:
    def test_two_words_on_a_line(self, tmp_path: Path) -> None:
        (tmp_path / "list").write_text("nhà house\n\nHà Nội\tHanoi\nnhà\thome\n", encoding="utf-8")
        assert read_word_list(tmp_path / "list") == [("nhà", "house"), ("Hà Nội", "Hanoi"), ("nhà", "home")]

    @pytest.mark.parametrize("text", ["one\n", "a b c\n", "\n", "a\t\n", "a\tb\tc\n"])
    def test_anything_else(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "list").write_text(text, encoding="utf-8")
        with pytest.raises(FormatError, match="list"):
            read_word_list(tmp_path / "list")

    def test_identical_strings(self) -> None:
        x = some_vectors()
        other = anchors(x, tuple(f"w{k}" for k in range(200, 500)))
        assert identical_words(anchors(x), other) == [(f"w{k}", f"w{k}") for k in range(200, 300)]


def corpus(seed: int, sentences: int = 200) -> list[Sentence]:
    rng = np.random.default_rng(seed)
    words = [f"{a}{b}" for a in ("ba", "ko", "lu", "mi") for b in ("na", "ter", "sol", "ri", "1")]
    return [Sentence.of([*rng.choice(words, 7).tolist(), "."]) for _ in range(sentences)]


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(models.tiny().pretrained, device="cpu")


@pytest.fixture(scope="module")
def alignment(elmo: Elmo) -> Alignment:
    other = Elmo(models.tiny(seed=1).pretrained, device="cpu")
    return align_anchors(text_anchors(elmo, corpus(0)), text_anchors(other, corpus(1))).alignment


class TestAnchors:
    def test_they_are_means(self, elmo: Elmo) -> None:
        found = text_anchors(elmo, corpus(0))
        assert "." not in found.words
        assert found.vectors.shape == (20, elmo.depth, elmo.width)
        layers = elmo.encode_layers(corpus(0))
        own = [v[:, t] for s, v in zip(corpus(0), layers, strict=True) for t, w in enumerate(s.tokens) if w == "kori"]
        np.testing.assert_allclose(found.vectors[found.places["kori"]], np.mean(own, axis=0), atol=1e-5)

    def test_an_index_has_them_too(self, elmo: Elmo, tmp_path: Path) -> None:
        settings = IndexSettings(layers="concat:0..-1", precision="float16")
        index = Index.build(elmo, corpus(0), tmp_path / "index", settings=settings)
        found, text = index_anchors(index, elmo), text_anchors(elmo, corpus(0))
        assert set(found.words) == set(text.words)
        order = [text.places[word] for word in found.words]
        np.testing.assert_allclose(found.vectors, text.vectors[order], atol=1e-2)
        top = Index.build(elmo, corpus(0)[:3], tmp_path / "top")
        with pytest.raises(InputError, match=r"holds layers 'top'.*concat:0..-1"):
            index_anchors(top, elmo)

    def test_rare_words_go_when_there_are_too_many(self, elmo: Elmo) -> None:
        rare = [Sentence.of([f"x{k}", "kori", "luna"]) for k in range(100)]
        found = text_anchors(elmo, rare, min_count=2, limit=5)
        assert found.words == ("kori", "luna")

    def test_too_little_text(self, elmo: Elmo) -> None:
        with pytest.raises(InputError, match="fewer than two words stand 5 times"):
            text_anchors(elmo, corpus(0)[:1])


class TestStored:
    def test_it_comes_back(self, alignment: Alignment, tmp_path: Path) -> None:
        again = Alignment.read(alignment.save(tmp_path / "map"))
        for name in ("maps", "means", "target_means", "scales"):
            assert np.array_equal(getattr(again, name), getattr(alignment, name))
        assert again.about.seed == "identical"
        assert again.about.scores == alignment.about.scores

    def test_damage_is_noticed(self, alignment: Alignment, tmp_path: Path) -> None:
        folder = alignment.save(tmp_path / "map")
        tensors, described = folder / "alignment.safetensors", folder / "alignment.json"
        data, text = bytearray(tensors.read_bytes()), described.read_text(encoding="utf-8")
        data[-9] ^= 1
        tensors.write_bytes(data)
        with pytest.raises(FormatError, match="not as they were written"):
            Alignment.read(folder)
        data[-9] ^= 1
        tensors.write_bytes(data)
        described.write_text(json.dumps({**json.loads(text), "rounds": 77}), encoding="utf-8")
        with pytest.raises(FormatError, match="not as they were written"):
            Alignment.read(folder)
        described.write_text(text[:50], encoding="utf-8")
        with pytest.raises(FormatError, match="not JSON"):
            Alignment.read(folder)
        described.unlink()
        with pytest.raises(InputError, match="holds no alignment"):
            Alignment.read(folder)


class TestAligned:
    def test_its_vectors_are_the_mapped_ones(self, elmo: Elmo, alignment: Alignment) -> None:
        mapped, sentences = elmo.aligned(alignment), corpus(3, 5)
        for plain, made in zip(elmo.encode_layers(sentences), mapped.encode_layers(sentences), strict=True):
            np.testing.assert_allclose(made, alignment.apply(plain), atol=1e-5)
        assert mapped.fingerprint != elmo.fingerprint
        assert mapped.width == alignment.width
        one, alone = mapped.encode_tokens(sentences)[0], mapped.encode_tokens(sentences[:1])[0]
        np.testing.assert_allclose(one, alone, atol=1e-5)

    def test_beside_the_model_and_by_name(self, elmo: Elmo, alignment: Alignment, tmp_path: Path) -> None:
        folder = save_pretrained(elmo.pretrained, tmp_path / "model")
        alignment.save(folder / "aligned" / "other")
        loaded = load_encoder(folder, device="cpu")
        expected = elmo.aligned(alignment).encode(["kori luna"])
        np.testing.assert_allclose(loaded.aligned("other").encode(["kori luna"]), expected, atol=1e-5)
        by_prefix = load_encoder(f"aligned:{folder}/aligned/other", device="cpu")
        np.testing.assert_allclose(by_prefix.encode(["kori luna"]), expected, atol=1e-5)
        with pytest.raises(InputError, match=r"no alignment 'another'.*\(other\)"):
            loaded.aligned("another")

    def test_another_model_is_refused(self, alignment: Alignment) -> None:
        with pytest.raises(InputError, match="other weights"):
            Elmo(models.tiny(seed=1).pretrained, device="cpu").aligned(alignment)


def test_the_same_place_is_found_again(elmo: Elmo, alignment: Alignment) -> None:
    other = Elmo(models.tiny(seed=1).pretrained, device="cpu")
    before = retrieve_tokens(elmo, other, corpus(5, 10))
    after = retrieve_tokens(elmo.aligned(alignment), other, corpus(5, 10))
    itself = retrieve_tokens(elmo, elmo, corpus(5, 10))
    assert [one.layer for one in after] == list(elmo.layer_names)
    assert after[0].at_1 > before[0].at_1, "words are found; places, in models that know nothing, are not asked for"
    assert itself[-1].at_1 == pytest.approx(1)
    assert itself[0].at_1 < 0.5, "layer 0 cannot tell the places of a word apart, and chance is not a hit"
