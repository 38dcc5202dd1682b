"""The C sources of this folder as a library, compiled for the machine on first use and kept among the user's caches.

Without a compiler, on a processor without AVX2, or with ELMOKIT_NATIVE=0 there is none.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from elmokit.formats import default_cache

SOURCES = ("products.h", "lstm.c", "tokens.c")
# No contraction: a number must come out the same wherever in a vector, and beside whatever, it is computed.
FLAGS = (
    "-O3",
    "-march=native",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-shared",
    "-fPIC",
)
PATIENCE = 120.0  # seconds that a compiler may take


@cache
def c_library() -> ctypes.CDLL | None:
    """The compiled functions; None where they cannot be had."""
    if c_hindrance() is not None:
        return None
    compiler = _compiler()
    try:
        sources = [Path(__file__).with_name(name) for name in SOURCES]
        about = [*(source.read_bytes() for source in sources), repr((compiler, FLAGS)).encode(), _processor()]
        name = f"elmokit-{hashlib.blake2b(bytes(1).join(about), digest_size=16).hexdigest()}.so"
        return _declared(_loaded(name, compiler, sources))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def c_hindrance() -> str | None:
    """Why nothing is compiled here, in a few words; None where it is tried."""
    if os.environ.get("ELMOKIT_NATIVE", "1") == "0":
        return "switched off by ELMOKIT_NATIVE=0"
    if os.name != "posix" or platform.machine().lower() not in ("x86_64", "amd64"):
        return f"they are for x86 under Unix, not for {platform.machine()} under {platform.system()}"
    return None if _compiler() else "no compiler: cc, or what CC names, is not there"


def _compiler() -> list[str]:
    """Its command; empty if there is none, or CC is no command line."""
    try:
        command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    except ValueError:
        return []
    return command if shutil.which(command[0]) else []


def _loaded(name: str, compiler: Sequence[str], sources: Sequence[Path]) -> ctypes.CDLL:
    """From the cache, or made; where the cache cannot be written to, made for this process alone."""
    try:
        kept = default_cache() / "native" / name
        if not kept.is_file():
            kept.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=kept.parent) as passing:  # on the same disk, to appear as a whole
                _compile(Path(passing) / name, compiler, sources).replace(kept)
        return ctypes.CDLL(str(kept))
    except (OSError, RuntimeError):  # nothing may be written or loaded there, what is there is spoilt, nobody's home
        with tempfile.TemporaryDirectory() as passing:  # a library that is loaded needs its file no more
            return ctypes.CDLL(str(_compile(Path(passing) / name, compiler, sources)))


def _compile(path: Path, compiler: Sequence[str], sources: Sequence[Path]) -> Path:
    command = [*compiler, *FLAGS, "-o", str(path), *(str(source) for source in sources if source.suffix == ".c")]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    return path


def _processor() -> bytes:
    """What the library is made for: machines of several kinds may share a cache."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    return "\n".join(
        [platform.processor(), *sorted({x for x in lines if x.startswith(("flags", "model name"))})]
    ).encode()


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    whole, place = ctypes.c_int32, ctypes.c_void_p
    library.elmokit_lstm.argtypes = [place, whole, place, whole, whole, whole, place, place, place, place, place]
    library.elmokit_tokens.argtypes = [place, whole, whole, place, place]
    for function in (library.elmokit_lanes, library.elmokit_most, library.elmokit_lstm, library.elmokit_tokens):
        function.restype = whole
    return library
