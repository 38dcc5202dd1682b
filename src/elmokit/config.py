"""Frozen dataclasses to flags, TOML and JSON, and back. Every value is checked, and every error reads alike:

    FILE: FIELD is GOT; expected WHAT

    @dataclass(frozen=True, slots=True)
    class TaggingSettings:
        hidden: Annotated[int, Range(1)] = setting(200, "LSTM cells in each direction")

`revive` makes a dataclass from plain values, `combine` from several sources (a file, then flags), `read_json` from one
of our own JSON files. They take any of: numbers, strings, true and false, None, `Literal`, tuples, lists, dictionaries
with string keys, named tuples, dataclasses, and unions of these.
"""

import json
import math
import tomllib
import zlib
from collections.abc import Collection, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from elmokit.errors import ConfigError, ElmokitError, FormatError

LARGEST_FILE = 64 << 20  # bytes; a larger file is not one of our descriptions
LARGEST_INTEGER = 1 << 63  # what an array can be indexed by

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Range:
    """What a number may be: `Annotated[int, Range(1, 1000)]`. Without one, any finite number that 64 bits hold."""

    low: float = -math.inf
    high: float = math.inf
    above: float = -math.inf  # more than this
    below: float = math.inf  # less than this
    finite: bool = True  # False: infinities and NaN, too

    def __contains__(self, value: float) -> bool:
        if not math.isfinite(value):
            return not self.finite
        return self.low <= value <= self.high and self.above < value < self.below

    def __str__(self) -> str:
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f" from {_number(self.low)} to {_number(self.high)}"
        ends = {"at least": self.low, "above": self.above, "at most": self.high, "below": self.below}
        told = " and ".join(f"{where} {_number(end)}" for where, end in ends.items() if math.isfinite(end))
        return f" of {told}" if told.startswith("at") else f" {told}" if told else ""


Count = Annotated[int, Range(0)]
Positive = Annotated[int, Range(1)]
Size = Annotated[int, Range(1, 10_000_000)]  # width of a layer; a larger one is a damaged or hostile file
SizeOrNone = Annotated[int, Range(0, 10_000_000)]  # 0: there is no such layer
Depth = Annotated[int, Range(1, 1000)]
Pairs = tuple[tuple[Annotated[int, Range(1, 1_000_000)], Annotated[int, Range(1, 1_000_000)]], ...]  # width, number
Clip = Annotated[float, Range(0)] | None  # 0 and None: no clip
Amount = Annotated[float, Range(0)]
Rate = Annotated[float, Range(above=0)]
Share = Annotated[float, Range(0, 1)]
Measured = Annotated[float, Range(finite=False)]  # a result, which may have been infinite


def setting(default: Any, help: str, *, part: str = "", was: str = "", later: bool = False) -> Any:
    """A field with its help text.

    `part` names a group of fields: some commands leave it out, and `examples` are added to labelled data. `was` is its
    name in older files, which is read, too; `later` ones came after 0.1.0 to settings that digests are made of.
    """
    return field(default=default, metadata={"help": help, "part": part, "was": was, "later": later})


def plain(config: Any, *, former: bool = False) -> dict[str, Any]:
    """A dataclass as values that JSON and TOML hold; dataclasses inside become objects.

    `former` gives renamed fields the names they had before and leaves out later ones that are not used, for digests
    that must stay the same.
    """
    values = asdict(config)
    if former:
        used = (f for f in fields(config) if not (f.metadata.get("later") and values[f.name] == f.default))
        return {f.metadata.get("was") or f.name: values[f.name] for f in used}
    return values


def revive(
    kind: type[C],
    values: Any,
    *,
    source: str = "the configuration",
    error: type[ElmokitError] = ConfigError,
    **options: bool,
) -> C:
    """A `kind` from plain values, such as `plain` made, after a way through JSON or TOML.

    ignore_unknown    leave out unknown fields, for files of other tools
    complete          refuse a missing field even where it has a default
    """
    made: C = _Reader(source, error, **options).fit(kind, values, "")
    return made


def combine(kind: type[C], *layers: tuple[str, Mapping[str, Any]]) -> C:
    """A configuration from several sources, each (its name, its values), the last one first: flags after a file.

    Values of None count as not given. Each source is checked by itself, so an error names the one to change.
    """
    merged: dict[str, Any] = {}
    for source, values in layers:
        given = {name: value for name, value in values.items() if value is not None}
        merged |= _Reader(source).fit_fields(kind, given, "", every=False)
    return _Reader("").build(kind, merged, "")


def check(config: Any, *, error: type[ElmokitError] = ConfigError) -> None:
    """Refuses values that a field's type or range does not allow; for `__post_init__`."""
    kind: Any = type(config)
    reader, hints = _Reader("", error), _hints(kind)
    for f in fields(config):
        reader.fit(hints[f.name], getattr(config, f.name), f.name)


def read_toml(path: Path | None) -> dict[str, Any]:
    """The values in a TOML file; none where there is no file."""
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as wrong:
        raise ConfigError(f"{path}: cannot be read ({wrong.strerror})") from None
    except (ValueError, RecursionError) as wrong:
        raise ConfigError(f"{path}: not a TOML file ({wrong})") from None


def read_json(
    path: Path,
    kind: type[C],
    *,
    what: str = "",
    advice: str = "",
    error: type[ElmokitError] = FormatError,
    **options: Any,
) -> C:
    """A `kind` from one of our own JSON files; whatever is wrong with the file is an `error`.

    what       what the file holds, for the errors: "the settings of an index"
    advice     what to do about a damaged file: "restore it, or make the index again"
    options    those of `parse_json`
    """
    tail = f"; {advice}" if advice else ""
    holds = f"; expected {what}" if what else ""
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise error(f"{path}: {size:,} bytes{holds}, which is at most {LARGEST_FILE:,}; is it another file?")
        content = path.read_bytes()
    except FileNotFoundError:
        raise error(f"{path}: no such file{holds}{tail}") from None
    except OSError as wrong:
        raise error(f"{path}: cannot be read ({wrong.strerror}){holds}{tail}") from None
    try:
        return parse_json(content, kind, source=str(path), error=error, **options)
    except ElmokitError as wrong:
        raise error(f"{wrong}{tail}") from None


def parse_json(
    content: bytes | str,
    kind: type[C],
    *,
    source: str,
    marks: Mapping[str, Any] | None = None,
    error: type[ElmokitError] = FormatError,
    **options: bool,
) -> C:
    """The same from JSON in memory: a header, a line of a log. `source` says where it is; options as in `revive`.

    `marks` are fields besides those of `kind` that must have these values: {"format": "elmokit index", "version": 1}.
    """
    try:
        values = json.loads(content if isinstance(content, str) else content.decode("utf-8-sig"))
    except json.JSONDecodeError as wrong:
        raise error(f"{source}: not JSON (line {wrong.lineno}: {wrong.msg}); is the file complete?") from None
    except (ValueError, RecursionError) as wrong:  # not UTF-8; digits without end; brackets without end
        raise error(f"{source}: not JSON ({type(wrong).__name__}); is it another file?") from None
    reader = _Reader(source, error, **options)
    if marks:
        values = dict(reader.fit(dict[str, Any], values, ""))
        for name, expected in marks.items():
            if name not in values:
                raise reader.missing(name, shorten(expected))
            if values[name] != expected or type(values[name]) is not type(expected):
                raise reader.wrong(name, values[name], shorten(expected))
            del values[name]
    made: C = reader.fit(kind, values, "")
    return made


def checksum_of(values: Mapping[str, Any], *, without: Collection[str] = ("checksum",)) -> str:
    """CRC-32 of the values that a JSON file holds, but for some fields, as 8 hexadecimal digits."""
    kept = {name: value for name, value in values.items() if name not in without}
    return f"{zlib.crc32(json.dumps(kept, sort_keys=True).encode()):08x}"


def shorten(value: Any, limit: int = 60) -> str:
    """A value as JSON, cut for a message."""
    text = json.dumps(value, ensure_ascii=False, default=repr).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def from_flag(text: str) -> list[list[int | str]]:
    """Pairs as a flag writes them, 3:128,4:64; parts that are no numbers stay text."""
    return [[int(n) if n.isdecimal() else n for n in part.split(":")] for part in text.split(",") if part]


@dataclass(frozen=True, slots=True)
class _Reader:
    """Plain values in, typed ones out; or an error with the source, the field's path, what was got and expected."""

    source: str
    error: type[ElmokitError] = ConfigError
    ignore_unknown: bool = False
    complete: bool = False

    def fit(self, hint: Any, value: Any, path: str) -> Any:
        hint, limits = _bare(hint)
        origin = get_origin(hint)
        if hint is Any:
            return value
        if hint in (int, float):
            return self._number(hint, value, path, limits)
        if origin in (Union, UnionType):
            return self._first(get_args(hint), value, path)
        if origin is Literal:
            if value not in get_args(hint) or type(value) not in map(type, get_args(hint)):
                raise self.wrong(path, value, _expected(hint))
            return value
        if _has_fields(hint):
            return self._object(hint, value, path)
        if _holds_pairs(hint):
            try:
                return self._sequence(hint, from_flag(value) if isinstance(value, str) else value, path)
            except self.error:  # an error about one number would not show what a pair is
                raise self.wrong(path, value, _expected(hint)) from None
        if origin in (tuple, list):
            return self._sequence(hint, value, path)
        if origin in (dict, Mapping):
            if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
                raise self.wrong(path, value, _expected(hint))
            return {key: self.fit(get_args(hint)[1], item, _join(path, key)) for key, item in value.items()}
        if type(value) is not hint:
            raise self.wrong(path, value, _expected(hint))
        return value

    def fit_fields(self, kind: Any, values: Mapping[str, Any], path: str, *, every: bool) -> dict[str, Any]:
        """The values by field name, each in its field's type; `every`: those without a default must be there."""
        known, before = _defaults(kind), _former_names(kind)
        values = {before.get(name, name): value for name, value in values.items()}
        if not self.ignore_unknown and (unknown := sorted(set(values) - set(known))):
            inside = f" in {path}" if path else ""
            names = ", ".join(sorted(known))
            raise self.error(f"{self._prefix}unknown field {unknown[0]!r}{inside}; the fields are {names}")
        hints = _hints(kind)
        for name, has_default in known.items():
            if every and name not in values and (self.complete or not has_default):
                raise self.missing(_join(path, name), _expected(hints[name]))
        return {name: self.fit(hints[name], values[name], _join(path, name)) for name in known if name in values}

    def build(self, kind: type[C], values: Mapping[str, Any], path: str) -> C:
        """The dataclass; what its fields together do not allow is told with the source."""
        try:
            return kind(**values)
        except ElmokitError as wrong:
            raise self.error(f"{self._prefix}{path}{': ' if path else ''}{wrong}") from None

    def wrong(self, path: str, value: Any, expected: str) -> ElmokitError:
        return self.error(f"{self._prefix}{path or 'the content'} is {shorten(value)}; expected {expected}")

    def missing(self, path: str, expected: str) -> ElmokitError:
        return self.error(f"{self._prefix}{path} is missing; expected {expected}")

    @property
    def _prefix(self) -> str:
        return f"{self.source}: " if self.source else ""

    def _number(self, hint: Any, value: Any, path: str, limits: Range) -> int | float:
        given, whole = value, isinstance(value, int) and not isinstance(value, bool)
        if hint is int and isinstance(value, float) and value.is_integer():  # 3.0, as some tools write a 3
            value, whole = int(value), True
        if hint is float and whole and abs(value) < LARGEST_INTEGER:
            value, whole = float(value), False
        right = whole and abs(value) < LARGEST_INTEGER if hint is int else isinstance(value, float)
        if not right or value not in limits:
            raise self.wrong(path, given, _expected(Annotated[hint, limits]))
        return value  # type: ignore[no-any-return]

    def _first(self, kinds: tuple[Any, ...], value: Any, path: str) -> Any:
        """The value in the first of several types that takes it."""
        if value is None and NoneType in kinds:
            return None
        others = [kind for kind in kinds if kind is not NoneType]
        for kind in others:
            try:
                return self.fit(kind, value, path)
            except self.error:
                if len(others) == 1:
                    raise
        raise self.wrong(path, value, " or ".join(map(_expected, others)))

    def _object(self, kind: Any, value: Any, path: str) -> Any:
        if isinstance(value, kind):
            return value
        if not is_dataclass(kind) and isinstance(value, list) and len(value) == len(_defaults(kind)):
            value = dict(zip(_defaults(kind), value, strict=True))  # a named tuple went through JSON as a list
        if not isinstance(value, Mapping):
            raise self.wrong(path, value, _expected(kind))
        return self.build(kind, self.fit_fields(kind, value, path, every=True), path)

    def _sequence(self, hint: Any, value: Any, path: str) -> Any:
        inner, origin = get_args(hint), get_origin(hint)
        if not isinstance(value, list | tuple):
            raise self.wrong(path, value, _expected(hint))
        kinds = [inner[0]] * len(value) if origin is list or inner[1:] == (...,) else list(inner)
        if len(kinds) != len(value):
            raise self.wrong(path, value, _expected(hint))
        made = [self.fit(kind, item, f"{path}[{at}]") for at, (kind, item) in enumerate(zip(kinds, value, strict=True))]
        return made if origin is list else tuple(made)


def _bare(hint: Any) -> tuple[Any, Range]:
    """A type without its annotations, and the range among them."""
    if get_origin(hint) is not Annotated:
        return hint, Range()
    inner, *notes = get_args(hint)
    return inner, next((note for note in notes if isinstance(note, Range)), Range())


def _holds_pairs(hint: Any) -> bool:
    """Whether it is tuple[tuple[int, int], ...], which a flag writes 3:128,4:64."""
    inner = get_args(hint)[0] if get_origin(hint) is tuple else None
    return get_origin(inner) is tuple and [_bare(kind)[0] for kind in get_args(inner)] == [int, int]


def _has_fields(hint: Any) -> bool:
    return isinstance(hint, type) and (is_dataclass(hint) or (issubclass(hint, tuple) and hasattr(hint, "_fields")))


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


@cache
def _defaults(kind: Any) -> dict[str, bool]:
    """The names of the fields, and whether each has a default."""
    if not is_dataclass(kind):
        return {name: name in kind._field_defaults for name in kind._fields}
    made = [f for f in fields(kind) if f.init]
    return {f.name: f.default is not MISSING or f.default_factory is not MISSING for f in made}


@cache
def _former_names(kind: Any) -> dict[str, str]:
    """What fields were called before, and are called now."""
    return {f.metadata["was"]: f.name for f in fields(kind) if f.metadata.get("was")} if is_dataclass(kind) else {}


def _expected(hint: Any) -> str:
    """A type in words."""
    hint, limits = _bare(hint)
    origin, inner = get_origin(hint), get_args(hint)
    simple = {int: f"a whole number{limits}", float: f"a number{limits}", bool: "true or false", str: "a string"}
    if hint in simple:
        return simple[hint]
    if hint is NoneType:
        return "null"
    if origin in (Union, UnionType):
        return " or ".join(map(_expected, inner))
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}" if len(inner) > 1 else str(inner[0])
    if origin in (tuple, list):
        if _holds_pairs(hint):
            limits = _bare(get_args(inner[0])[0])[1]
            return f"pairs of whole numbers{limits} such as [[3, 128], [4, 64]], or 3:128,4:64 as a flag"
        return "a list" if origin is list or inner[1:] == (...,) else f"a list of {len(inner)} values"
    return "an object {...}"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _number(value: float) -> str:
    return f"{value:g}" if not float(value).is_integer() else f"{int(value):,}"
