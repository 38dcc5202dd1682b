"""What the expressions of the tokenizers may not use."""

import re
from pathlib import Path

import elmokit

POSSESSIVE_GROUP = re.compile(r"\)(?:[*+?]|\{+[\d,]+\}+)\+(?!\+)")


def test_no_group_has_a_possessive_quantifier() -> None:
    """Up to Python 3.11.4, Debian 12's among them, such groups match wrongly; atomic groups, (?>...), do not."""
    for wrong in (r"(?:a|b)*+", r"(?:a)++", r"(a)?+", r"(?:a){1,2}+"):
        assert POSSESSIVE_GROUP.search(wrong)
    assert not POSSESSIVE_GROUP.search(r"(?>(?:a|b)*)[ab)]*+\d{1,4}+")
    for path in Path(elmokit.__file__).parent.rglob("*.py"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not POSSESSIVE_GROUP.search(line), f"{path.name}, line {number}: {line.strip()}"
