"""Text on a terminal: control characters in it are shown as signs, so that no text can steer the terminal."""

from collections.abc import Iterable
from typing import Any

from rich import console
from rich.segment import Segment

SIGNS = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},  # ESC becomes ␛
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}


def visible(text: str) -> str:
    """The text with a sign of one column for each control character but newline and tab."""
    return text if text.isprintable() else text.translate(SIGNS)


class Console(console.Console):
    """rich's console, which passes control characters in a text through; here they are signs on a terminal.

    Text stays what it is: no `:name:` becomes an emoji.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"emoji": False, **options})

    def render(self, *given: Any, **options: Any) -> Iterable[Segment]:
        for segment in super().render(*given, **options):
            if self.is_terminal and not segment.control and not segment.text.isprintable():
                segment = segment._replace(text=visible(segment.text))
            yield segment
