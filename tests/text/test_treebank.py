"""The Penn Treebank's escapes."""

import pytest

from elmokit.text import unescape_treebank


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("-LRB-", "("),
        ("-RRB-", ")"),
        ("-LSB-", "["),
        ("-RSB-", "]"),
        ("-LCB-", "{"),
        ("-RCB-", "}"),
        ("``", '"'),
        ("''", '"'),
        ("1\\/2", "1/2"),
        ("S\\*M\\*A", "S*M*A"),
        ("a\\b", "a\\b"),
        ("'s", "'s"),
        ("LRB", "LRB"),
        ("", ""),
    ],
)
def test_unescapes(token: str, expected: str) -> None:
    assert unescape_treebank(token) == expected
