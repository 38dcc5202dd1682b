"""JSON files whose fields have known types. A wrong one gives an error with file, field and what was meant."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elmokit.errors import WeightsError

LARGEST_FILE = 64 << 20  # bytes; no configuration comes near it
LARGEST_SIZE = (
    10_000_000  # width of any layer; a larger one is a damaged or hostile file, refused before anything is made
)
MANY = 1000  # layers, highways, filters

_REQUIRED: Any = object()


class Section:
    """One JSON object of a file. A field read from it has the type asked for, or the error says what stands there."""

    def __init__(self, values: Mapping[str, Any], *, file: str, name: str = "") -> None:
        self.values, self.file, self.name = values, file, name

    @classmethod
    def read(cls, path: Path) -> "Section":
        return cls(read_json_object(path), file=str(path))

    def path(self, field: str) -> str:
        return f"{self.name}.{field}" if self.name else field

    def wrong(self, field: str, expected: str) -> WeightsError:
        found = f"is {shorten(self.values[field])}" if field in self.values else "is missing"
        return WeightsError(f"{self.file}: field '{self.path(field)}' {found}, expected {expected}")

    def section(self, field: str) -> "Section":
        value = self.values.get(field)
        if not isinstance(value, dict):
            raise self.wrong(field, "an object {...}")
        return Section(value, file=self.file, name=self.path(field))

    def optional_section(self, field: str) -> "Section | None":
        return None if self.values.get(field) is None else self.section(field)

    def integer(self, field: str, *, default: Any = _REQUIRED, low: int = 0, high: int = LARGEST_SIZE) -> int:
        value = self.values.get(field, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(field, f"a whole number from {low} to {high}")
        return value

    def number(self, field: str, *, default: Any = _REQUIRED) -> float:
        value = self.values.get(field, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.wrong(field, "a number")
        return float(value)

    def limit(self, field: str) -> float | None:
        """A clip: missing, null and 0 all mean none."""
        if self.values.get(field) is None:
            return None
        value = self.number(field)
        if value < 0:
            raise self.wrong(field, "a positive number, or null for no clip")
        return value or None

    def boolean(self, field: str, *, default: Any = _REQUIRED) -> bool:
        value = self.values.get(field, default)
        if not isinstance(value, bool):
            raise self.wrong(field, "true or false")
        return value

    def text(self, field: str, *, default: Any = _REQUIRED) -> str:
        value = self.values.get(field, default)
        if not isinstance(value, str):
            raise self.wrong(field, "a string")
        return value

    def filters(self, field: str) -> tuple[tuple[int, int], ...]:
        """Convolutions as [[width, how many], ...]."""
        value = self.values.get(field)
        if not isinstance(value, list) or len(value) > MANY or not all(_is_filter(pair) for pair in value):
            raise self.wrong(field, "a list of pairs [width, how many], such as [[1, 32], [2, 64]]")
        return tuple((int(width), int(n)) for width, n in value)


def _is_filter(pair: Any) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(isinstance(n, int) and not isinstance(n, bool) and 0 < n <= LARGEST_SIZE // 10 for n in pair)
    )


def read_json_object(path: Path) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise WeightsError(f"{path}: {size:,} bytes, too large for a configuration; is it another file?")
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise WeightsError(f"{path}: no such file") from None
    except json.JSONDecodeError as error:
        raise WeightsError(f"{path}: not JSON (line {error.lineno}: {error.msg}); is the file complete?") from None
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        raise WeightsError(f"{path}: not JSON ({type(error).__name__}); is it another file?") from None
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror})") from None
    if not isinstance(value, dict):
        raise WeightsError(f"{path}: holds {shorten(value)}, expected a JSON object {{...}}")
    return value


def shorten(value: Any, limit: int = 60) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
