"""Labelled trees: every phrase with its words, and broken lines told by number."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import FormatError
from elmokit.formats import read_lines
from elmokit.tasks.classify._trees import LabelledTree, Phrase, read_trees


def parse(*lines: str) -> list[LabelledTree]:
    return list(read_trees(lines, name="trees.txt"))


def test_every_node_is_a_phrase() -> None:
    (tree,) = parse("(3 (2 It) (4 (2 's) (3 lovely)))")
    assert tree.sentence.tokens == ("It", "'s", "lovely")
    assert tree.phrases == (
        Phrase(0, 1, "2"),
        Phrase(1, 2, "2"),
        Phrase(2, 3, "3"),
        Phrase(1, 3, "4"),
        Phrase(0, 3, "3"),
    )
    assert tree.label == "3"


def test_escapes_are_undone_and_blank_lines_passed_over() -> None:
    trees = parse("", "(1 (2 -LRB-) (2 and\\/or))", "  ", "(0 Bad)")
    assert [tree.sentence.tokens for tree in trees] == [("(", "and/or"), ("Bad",)]
    assert [tree.line for tree in trees] == [2, 4]


TREE = st.recursive(
    st.tuples(st.sampled_from("01234"), st.sampled_from(["a", "good", "film", ".", "3"])),
    lambda inner: st.tuples(st.sampled_from("01234"), st.lists(inner, min_size=1, max_size=3)),
    max_leaves=12,
)


@given(TREE)
def test_what_is_written_is_read(tree: tuple[str, object]) -> None:
    def write(node: tuple[str, object]) -> str:
        label, below = node
        return f"({label} {below if isinstance(below, str) else ' '.join(map(write, below))})"  # type: ignore[call-overload]

    def walk(node: tuple[str, object], tokens: list[str]) -> Iterator[Phrase]:
        label, below = node
        start = len(tokens)
        if isinstance(below, str):
            tokens.append(below)
        else:
            for part in below:  # type: ignore[attr-defined]
                yield from walk(part, tokens)
        yield Phrase(start, len(tokens), label)

    (read,) = parse(write(tree))
    tokens: list[str] = []
    assert read.phrases == tuple(walk(tree, tokens))
    assert read.sentence.tokens == tuple(tokens)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("(3 (2 It) (4 works)", "1 brackets are not closed"),
        ("(3 It)) (2 x)", r"'\) \(2 x\)' follows a whole tree"),
        ("(3 It) (2 x)", "follows a whole tree"),
        ("It works", "begins with 'It', expected a tree"),
        ("((2 It))", "a node begins with '\\(', expected a label"),
        ("(2 )", "a node has no words"),
        ("()", "a node has no label"),
    ],
)
def test_broken_trees_are_told_with_their_line(line: str, told: str) -> None:
    with pytest.raises(FormatError, match=f"trees.txt, line 2: .*{told}"):
        parse("(1 fine)", line)


def test_the_treebank_is_read_whole(shared: Path) -> None:
    path = shared / "eval/sst5/dev.txt.xz"
    trees = list(read_trees(read_lines(path), name="dev"))
    assert len(trees) == 1101
    assert {tree.label for tree in trees} == set("01234")
    assert all(tree.phrases[-1][:2] == (0, len(tree.sentence)) for tree in trees)
    assert all(len(tree.phrases) == 2 * len(tree.sentence) - 1 for tree in trees)  # binary
