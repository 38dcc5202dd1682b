"""Abbreviations learnt from a text: what shows them, what they change, and how a tokenizer remembers them."""

import pickle
from pathlib import Path

import pytest

from elmokit.errors import FormatError, InputError
from elmokit.text import load_tokenizer
from elmokit.text.abbreviations import learn_abbreviations, lists_as_text, read_lists

NAMES = ("Alder", "Brook", "Cole", "Dunne", "Ellis")
STARTS = ("He", "She", "The", "It")


def text(copies: int = 40) -> list[str]:
    """Prof. before names only; words that end sentences; Smith, a name that does as well."""
    lines = []
    for k in range(copies):
        name, start = NAMES[k % len(NAMES)], STARTS[k % len(STARTS)]
        other = STARTS[(k + 1) % len(STARTS)].lower()
        lines.append(f"Then Prof. {name} walked home. {start} slept there and {other} stayed.")
        lines.append(f"Later {other} met Smith. {start} knew {other} well.")
    return lines


def test_a_stop_that_ends_no_sentence_belongs_to_its_word() -> None:
    abbreviations, starters = learn_abbreviations(text())
    assert [(one.word, one.stops, one.places, one.starters) for one in abbreviations] == [("Prof", 40, 40, 0)]
    assert set(starters) == set(STARTS)


def test_a_word_that_is_mostly_written_without_a_stop_is_none() -> None:
    with_others = [*text(), *(f"Then Prof {name} came." for name in NAMES * 9)]
    assert learn_abbreviations(with_others)[0] == []


def test_few_places_and_scripts_without_capitals_show_nothing() -> None:
    assert learn_abbreviations(text(4))[0] == []
    assert learn_abbreviations(["यह घर है. वह आया."] * 50) == ([], [])
    assert learn_abbreviations([]) == ([], [])


@pytest.fixture
def learnt(tmp_path: Path) -> Path:
    path = tmp_path / "learnt.txt"
    path.write_text(lists_as_text(*learn_abbreviations(text())), encoding="utf-8")
    return path


def test_they_keep_their_stop_and_end_a_sentence_only_before_a_starter(learnt: Path) -> None:
    cut, plain = load_tokenizer(f"unicode@2+abbreviations:{learnt}"), load_tokenizer("unicode@2")
    given = "He met Prof. Cole. She is a Prof. He is in the U.S. She saw the U.S. Army. A Prof."
    assert [" ".join(s.tokens) for s in cut.split(given)] == [
        "He met Prof. Cole .",
        "She is a Prof .",
        "He is in the U.S .",
        "She saw the U.S. Army .",
        "A Prof .",
    ]
    assert [s.text for s in plain.split(given)][:2] == ["He met Prof.", "Cole."]
    assert all(s.text is not None and s.text == given[s.start : s.start + len(s.text)] for s in cut.split(given))
    assert cut.tokenize("Profound. Prof.x").tokens == plain.tokenize("Profound. Prof.x").tokens


def test_a_tokenizer_has_them_in_its_name(learnt: Path) -> None:
    cut = load_tokenizer(f"unicode@2+abbreviations:{learnt}+lower")
    assert (cut.name, cut.version) == ("unicode+abbreviations=Prof/He,It,She,The+lower", 2)
    learnt.unlink()  # a model needs no file
    again = load_tokenizer(cut.name, cut.version)
    for one in (again, pickle.loads(pickle.dumps(again))):
        assert one.name == cut.name
        assert one.tokenize("Prof. Cole came").tokens == ("prof.", "cole", "came")


@pytest.mark.parametrize("name", ["unicode+abbreviations=Prof/He", "english+abbreviations=Prof/He"])
def test_only_the_second_version_takes_them(name: str) -> None:
    with pytest.raises(InputError, match="for unicode@2"):
        load_tokenizer(name)


@pytest.mark.parametrize(
    "part", ["abbreviations", "abbreviations=a b/", "abbreviations=(/", "abbreviations:", "abbreviationsx=a/b"]
)
def test_what_is_no_list(part: str) -> None:
    with pytest.raises(InputError, match="--learn"):
        load_tokenizer(f"unicode@2+{part}")


def test_a_file_that_holds_something_else(tmp_path: Path) -> None:
    path = tmp_path / "list"
    with pytest.raises(InputError, match="cannot be read"):
        read_lists(path)
    path.write_text("abbreviation\tDr\nnothing\n", encoding="utf-8")
    with pytest.raises(FormatError, match="line 2: 'nothing'"):
        read_lists(path)
    path.write_text("abbreviation\tDr\n\nabbreviation\tz.B\t3\t3\t0\nstarter\tDer\n", encoding="utf-8")
    assert read_lists(path) == (("Dr", "z.B"), ("Der",))
