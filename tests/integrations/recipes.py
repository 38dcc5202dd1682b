"""The recipes of docs/scale.md, with the settings of a test."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scale.md"


def recipe(word: str, **changes: str) -> str:
    """The one Python block of the page that has this word in it; lines that begin with a name get another value."""
    blocks = re.findall(r"^```python no-run\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)
    (code,) = [block for block in blocks if word in block]
    for name, value in changes.items():
        code, found = re.subn(rf"^{name} = .*$", lambda _, to=f"{name} = {value}": to, code, flags=re.M)
        assert found == 1, name
    return str(code)
