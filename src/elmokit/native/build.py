"""Builds the C sources of this folder into one library that holds a variant for each kind of CPU.

Run as a program it builds into this folder, which is all that a source tree without an install needs:

    python src/elmokit/native/build.py

The package's build hook calls `build`. Needs a C compiler (`cc`, or what CC names) and only Python's own library, since
it runs before anything is installed.
"""

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

# Every process that runs a model reads this file, for the digest; what only a build needs is imported in its functions.

HERE = Path(__file__).resolve().parent
HEADERS, SOURCES, CHOICE = (
    ("vectors.h", "products.h", "tiles.h"),
    ("lstm.c", "tokens.c", "loading.c", "checksums.c"),
    "variants.c",
)
NAME = {"win32": "libelmokit.dll", "darwin": "libelmokit.dylib"}.get(sys.platform, "libelmokit.so")
# No contraction: a number must come out the same wherever in a vector, and beside whatever, it is computed.
FLAGS = ("-O3", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-math-errno", "-fno-trapping-math")
PATIENCE = 600.0  # seconds that a compiler may take for a file

AVX2 = "-mavx2 -mfma -mbmi -mbmi2 -mpclmul"
AVX512 = f"{AVX2} -mavx512f -mavx512bw -mavx512dq -mavx512vl"
VARIANTS = {  # what the compiler is told for each, by what it compiles for; variants.c says which one a CPU runs
    "x86_64": {
        "avx2": AVX2,
        "avxvnni": f"{AVX2} -mavxvnni",
        "avx512": AVX512,
        "avx512vnni": f"{AVX512} -mavx512vnni",
        "avx512bf16": f"{AVX512} -mavx512vnni -mavx512bf16",
        "amx": f"{AVX512} -mavx512vnni -mavx512bf16 -mamx-tile -mamx-int8 -mamx-bf16",
    },
    "aarch64": {
        "neon": "-march=armv8-a",
        "dotprod": "-march=armv8.2-a+dotprod",
        "i8mm": "-march=armv8.2-a+dotprod+i8mm",
    },
}
MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "x64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


class BuildError(Exception):
    """Why there is no library, in a few words."""


def sources_digest() -> str:
    """Of all C sources; the library carries it, so that one made of other sources is noticed."""
    digest = hashlib.blake2b(digest_size=16)
    for name in (*HEADERS, *SOURCES, CHOICE):
        digest.update((HERE / name).read_bytes() + b"\0")
    return digest.hexdigest()


def compiler() -> list[str]:
    """Its command."""
    import shlex
    import shutil

    try:
        command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    except ValueError as error:
        raise BuildError(f"CC is no command line: {error}") from error
    if shutil.which(command[0]) is None:
        raise BuildError(f"no C compiler: {command[0]} is not there (CC names another)")
    return command


def build(target: Path | None = None, *, variants: Mapping[str, str] | None = None) -> list[str]:
    """Writes the library, whole or not at all, into this folder or to `target`; returns the variants it holds.

    `variants` gives the compiler's flags for each; default: all of those for its machine. One that the compiler does
    not know is left out.
    """
    import shlex
    import tempfile
    from concurrent.futures import ThreadPoolExecutor

    command = compiler()
    given = variants or VARIANTS.get(machine := _machine(command))
    if given is None:
        raise BuildError(f"there is no C for {machine}, only for {' and '.join(VARIANTS)}")
    target = target or HERE / NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".elmokit-build-") as passing:
        folder = Path(passing)
        shared = [*command, *FLAGS, *([] if sys.platform == "win32" else ["-fPIC"])]

        def objects(variant: str) -> list[Path] | str:
            """A variant's compiled files, or what the compiler said against it."""
            made = [folder / f"{source}.{variant}.o" for source in SOURCES]
            for source, out in zip(SOURCES, made, strict=True):
                flags = [*shlex.split(given[variant]), f"-DVARIANT={variant}"]
                if said := _run([*shared, *flags, "-c", str(HERE / source), "-o", str(out)], out):
                    return said
            return made

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            made = dict(zip(given, pool.map(objects, given), strict=True))
        held = [name for name in given if not isinstance(made[name], str)]
        if not held:
            raise BuildError(f"{shlex.join(command)} compiled nothing: {next(iter(made.values()))}")
        about = [f'-DSOURCES="{sources_digest()}"', *(f"-DWITH_{name}" for name in held)]
        parts = [str(path) for name in held for path in made[name]]
        draft = folder / target.name
        if said := _run([*shared, *about, "-shared", "-o", str(draft), str(HERE / CHOICE), *parts], draft):
            raise BuildError(f"{shlex.join(command)} linked nothing: {said}")
        draft.chmod(0o755)  # whatever the umask is
        draft.replace(target)
    return held


def up_to_date(target: Path | None = None) -> bool:
    """Whether there is a library, made of the sources as they are."""
    path = target or HERE / NAME
    return path.is_file() and sources_digest().encode() in path.read_bytes()


def _machine(command: list[str]) -> str:
    """What the compiler compiles for."""
    import subprocess

    try:
        told = subprocess.run([*command, "-dumpmachine"], capture_output=True, text=True, timeout=PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"{' '.join(command)} does not say what it compiles for: {error}") from error
    name = told.stdout.strip().partition("-")[0].lower()
    return MACHINES.get(name, name or "an unknown machine")


def _run(command: list[str], out: Path) -> str | None:
    """None where the file was made; else what the compiler said."""
    import subprocess

    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, errors="replace", check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if ran.returncode == 0 and out.is_file():
        return None
    return next((line for line in ran.stderr.splitlines() if "error" in line), f"it ended with {ran.returncode}")


def main() -> int:
    import argparse

    parser = argparse.ArgumentParser(description="Build elmokit's C library with cc, or what CC names.")
    parser.add_argument("--output", type=Path, help="where to write it; default: into this folder, to be used")
    parser.add_argument("--if-stale", action="store_true", help="only if there is none of these sources")
    parser.add_argument(
        "--variant", action="append", default=[], metavar="NAME=FLAGS", help="only these, with these compiler flags"
    )
    asked = parser.parse_args()
    if asked.if_stale and up_to_date(asked.output):
        return 0
    try:
        held = build(asked.output, variants=dict(one.split("=", 1) for one in asked.variant) or None)
    except BuildError as error:
        print(f"not built: {error}", file=sys.stderr)
        return 1
    print(f"built {asked.output or HERE / NAME} with {', '.join(held)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
