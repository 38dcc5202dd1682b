"""Settings of tasks: frozen dataclasses of plain values. Field = attribute = TOML key = command-line flag.

    @dataclass(frozen=True, slots=True)
    class TaggingSettings:
        hidden: int = setting(200, "LSTM cells in each direction")

Values are numbers, strings, true or false, None, and tuples of these, so that JSON and TOML hold them as they are.
"""

import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, field, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from elmokit.errors import ConfigError

C = TypeVar("C")


def setting(default: Any, help: str) -> Any:
    """A field with its help text."""
    return field(default=default, metadata={"help": help})


def plain(config: Any) -> dict[str, Any]:
    """A configuration dataclass as values that JSON holds; nested ones become objects."""
    return asdict(config)


def revive(kind: type[C], values: Mapping[str, Any], *, source: str = "the configuration") -> C:
    """A dataclass from what `plain` made of it, after a way through JSON or TOML; what does not fit is an error."""
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(values) - set(known)):
        raise ConfigError(f"{source}: unknown field {unknown[0]!r}; the fields are {', '.join(sorted(known))}")
    for name, f in known.items():
        if name not in values and f.default is MISSING and f.default_factory is MISSING:
            raise ConfigError(f"{source}: field {name!r} is missing")
    hints = get_type_hints(kind)
    return kind(**{name: _fit(hints[name], value, f"{source}: {name}") for name, value in values.items()})


def _fit(hint: Any, value: Any, what: str) -> Any:
    """The value in the type its field asks for."""
    if is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{what} is {value!r}; expected an object")
        return revive(hint, value, source=what)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return None if value is None else _fit_first([kind for kind in inner if kind is not type(None)], value, what)
    if origin is Literal:
        if value not in inner:
            raise ConfigError(f"{what} is {value!r}; expected one of {', '.join(map(str, inner))}")
        return value
    if origin is tuple:
        if isinstance(value, str) and get_origin(inner[0]) is tuple:  # a flag: 3:128,4:64
            value = [[int(n) if n.isdigit() else n for n in part.split(":")] for part in value.split(",") if part]
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{what} is {value!r}; expected a list")
        kinds = [inner[0]] * len(value) if inner[1:] == (...,) else list(inner)
        if len(kinds) != len(value):
            raise ConfigError(f"{what} is {value!r}; expected {len(kinds)} values")
        return tuple(_fit(kind, item, what) for kind, item in zip(kinds, value, strict=True))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint in (int, float, str, bool) and type(value) is not hint:
        raise ConfigError(f"{what} is {value!r}; expected a {hint.__name__}")
    return value


def _fit_first(kinds: list[Any], value: Any, what: str) -> Any:
    """The value in the first of several types that takes it."""
    for kind in kinds[:-1]:
        try:
            return _fit(kind, value, what)
        except ConfigError:
            continue
    return _fit(kinds[-1], value, what)
