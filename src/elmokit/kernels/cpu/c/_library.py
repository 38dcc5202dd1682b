"""The C sources of this folder as a library, compiled for the machine on first use and kept among the user's caches.

Without a compiler, on a processor without AVX2, or with ELMOKIT_NATIVE=0 there is none. A cache that other users can
write to is not used: the library is then compiled for this process alone.
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
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Compiled:
    """The library of this process, or why there is none."""

    library: ctypes.CDLL | None = None
    missing: str | None = None  # why there is none
    unkept: str | None = None  # why it is not in the cache, but compiled for this process alone


def c_library() -> ctypes.CDLL | None:
    """The compiled functions; None where there are none."""
    return compiled().library


@cache
def compiled() -> Compiled:
    """The library, compiled if it is not in the cache."""
    if (missing := _hindrance()) is not None:
        return Compiled(missing=missing)
    compiler = _compiler()
    try:
        sources = [Path(__file__).with_name(name) for name in SOURCES]
        about = [*(source.read_bytes() for source in sources), repr((compiler, FLAGS)).encode(), _processor()]
        name = f"elmokit-{hashlib.blake2b(bytes(1).join(about), digest_size=16).hexdigest()}.so"
        return _load(name, compiler, sources)
    except (OSError, ValueError, subprocess.SubprocessError):
        return Compiled(missing="the compiler made none, or there is no AVX2 with FMA")


def _hindrance() -> str | None:
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


def _load(name: str, compiler: Sequence[str], sources: Sequence[Path]) -> Compiled:
    """From the cache, or compiled; where the cache is no good, for this process alone."""
    try:
        folder = default_cache() / "native"
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if (unkept := _unsafe(folder)) is None:
            kept = folder / name
            if not kept.is_file() or _unsafe(kept):
                with tempfile.TemporaryDirectory(dir=folder) as passing:  # on the same disk, to appear as a whole
                    _compile(Path(passing) / name, compiler, sources).replace(kept)
            return Compiled(_declared(ctypes.CDLL(str(kept))))
    except (OSError, RuntimeError) as error:  # it cannot be written to, holds a damaged file, or there is no home
        unkept = f"the cache cannot be used: {error}"
    with tempfile.TemporaryDirectory() as passing:  # the file is not needed once it is loaded
        made = ctypes.CDLL(str(_compile(Path(passing) / name, compiler, sources)))
    return Compiled(_declared(made), unkept=unkept)


def _unsafe(path: Path) -> str | None:
    """Why code must not be loaded from there: another user owns it or can change it. The administrator may."""
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to another user; set ELMOKIT_CACHE to a folder of your own"
    if status.st_mode & 0o022:
        return f"other users can write to {path}; run chmod go-w {path}"
    return None


def _compile(path: Path, compiler: Sequence[str], sources: Sequence[Path]) -> Path:
    command = [*compiler, *FLAGS, "-o", str(path), *(str(source) for source in sources if source.suffix == ".c")]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    path.chmod(0o755)  # whatever the umask is
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
