"""The library that `build.py` made of the C sources of this folder, and the variant of it that this CPU runs.

Nothing is compiled here. There is none where there was no compiler when the package was built, on a CPU without the
instructions it is made for, or with ELMOKIT_NATIVE=0. ELMOKIT_VARIANT names another variant that this CPU runs,
ELMOKIT_LIBRARY another library, as one with sanitizers.
"""

import ctypes
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from elmokit.errors import ElmokitWarning
from elmokit.native import build

WHOLE, PLACE = ctypes.c_int32, ctypes.c_void_p
ARGUMENTS: dict[str, list[Any]] = {
    "lanes": [],
    "most": [],
    "halves": [],
    "lstm": [PLACE, WHOLE, PLACE, WHOLE, WHOLE, WHOLE, PLACE, PLACE, PLACE, PLACE, PLACE],
    "tokens": [PLACE, WHOLE, WHOLE, PLACE, PLACE, PLACE],
    "groups": [WHOLE, WHOLE, PLACE, PLACE, PLACE, PLACE],
    "lay_out": [WHOLE, WHOLE, WHOLE, WHOLE, PLACE, PLACE, PLACE, PLACE],
    "table": [WHOLE, WHOLE, WHOLE, WHOLE, PLACE, PLACE, PLACE],
    "crc32": [PLACE, ctypes.c_int64, PLACE],
    "rows": [WHOLE, ctypes.c_int64, ctypes.c_int64, PLACE, PLACE, PLACE],
}
SHORT = ("rows",)  # functions that keep Python's lock: handing it over would take longer than they do
COMMAND = f"python {build.__file__}"


@dataclass(frozen=True, slots=True)
class CLibrary:
    """The functions of one variant."""

    variant: str
    elmokit_lanes: Callable[[], int]
    elmokit_most: Callable[[], int]
    elmokit_halves: Callable[[], int]  # how bfloat16 is multiplied: 0 as int16, 1 by vectors, 2 by tiles
    elmokit_lstm: Callable[..., int]
    elmokit_tokens: Callable[..., int]
    elmokit_groups: Callable[..., int]
    elmokit_lay_out: Callable[..., int]
    elmokit_table: Callable[..., int]
    elmokit_crc32: Callable[..., int]
    elmokit_rows: Callable[..., int]


@dataclass(frozen=True, slots=True)
class Compiled:
    """The library of this process, or why there is none."""

    library: CLibrary | None = None
    missing: str | None = None  # why there is none


def c_library() -> CLibrary | None:
    """The compiled functions; None where there are none."""
    return compiled().library


@cache
def compiled() -> Compiled:
    """The library, loaded once."""
    if os.environ.get("ELMOKIT_NATIVE", "1") == "0":
        return Compiled(missing="switched off by ELMOKIT_NATIVE=0")
    named = os.environ.get("ELMOKIT_LIBRARY")
    path = Path(named) if named else build.HERE / build.NAME
    if not path.is_file():
        why = f"ELMOKIT_LIBRARY is {named}, which is no file" if named else f"with a C compiler, run {COMMAND}"
        return Compiled(missing=f"the library was not built; {why}")
    try:
        loaded = ctypes.CDLL(str(path))
        loaded.elmokit_sources.restype = loaded.elmokit_variant.restype = ctypes.c_char_p
        made_of = loaded.elmokit_sources().decode()
    except (OSError, AttributeError) as error:
        return _refused(f"{path} cannot be loaded ({error}); run {COMMAND}")
    if made_of != build.sources_digest():
        return _refused(f"{path} is made of other C sources than these; run {COMMAND}")
    return _chosen(loaded)


def _chosen(loaded: ctypes.CDLL) -> Compiled:
    """The variant asked for, or the best that runs here."""
    held: list[str] = []
    while (name := loaded.elmokit_variant(len(held))) is not None:
        held.append(name.decode())
    running = [name for k, name in enumerate(held) if loaded.elmokit_runs(k)]
    if not running:
        return Compiled(missing=f"this CPU runs none of its variants: {', '.join(held)}")
    wanted = os.environ.get("ELMOKIT_VARIANT") or running[0]
    if wanted not in running:
        return _refused(f"ELMOKIT_VARIANT is {wanted!r}; this CPU runs {', '.join(running)}")
    functions = [getattr(loaded, f"elmokit_{name}_{wanted}") for name in ARGUMENTS]
    for function, arguments in zip(functions, ARGUMENTS.values(), strict=True):
        function.argtypes, function.restype = arguments, WHOLE
    for name, arguments in ((name, ARGUMENTS[name]) for name in SHORT):
        held_on = ctypes.PYFUNCTYPE(WHOLE, *arguments)
        place = ctypes.cast(getattr(loaded, f"elmokit_{name}_{wanted}"), PLACE).value or 0
        functions[list(ARGUMENTS).index(name)] = held_on(place)
    return Compiled(CLibrary(wanted, *functions))


def _refused(why: str) -> Compiled:
    """Something is there but cannot be used: more is lost than was asked for, so it is also said aloud."""
    warnings.warn(f"elmokit's C functions are not used: {why}", ElmokitWarning, stacklevel=4)
    return Compiled(missing=why)
