"""The `--tiles` of kernels.py: one layer of the recurrence at a size, with other block shapes than it would choose."""

import time

from kernels_bench import Run, _smoke, _stack, _time
from kernels_shared import in_parallel


def _variants() -> dict[str, dict[str, object]]:
    """What differs from the default plan; each kernel's shapes by themselves."""
    from elmokit.kernels.triton._pieces import Tile

    found: dict[str, dict[str, object]] = {"default": {}, "default again": {}, "hoisted": {"hoist": True}}

    def add(field: str, *shapes: tuple[int, ...], **more: object) -> None:
        named = "".join(f" {key}={value}" for key, value in more.items())
        found.update({f"{field} {'x'.join(map(str, s))}{named}": {field: Tile(*s), **more} for s in shapes})

    add("gates", (128, 64, 64, 8, 3), (128, 32, 128, 4, 2), (128, 32, 64, 4, 4), (64, 64, 64, 4, 3))
    add("gates", (128, 32, 64, 4, 4), (128, 64, 64, 8, 3), tma=True)
    add("project", (64, 64, 128, 4, 3), (64, 64, 128, 4, 4), (64, 32, 128, 4, 4), (128, 64, 64, 4, 4))
    add("project", (128, 64, 64, 4, 4), (64, 64, 128, 4, 3), (64, 64, 64, 4, 4), project_split=2)
    add("cell_backward", (32, 64, 64, 4, 3), (32, 32, 64, 4, 3), (64, 64, 64, 8, 3), (16, 128, 64, 4, 3))
    add("cell_backward", (16, 128, 64, 4, 3), (8, 256, 64, 4, 3), library_du=True)
    add("feed_backward", (128, 64, 128, 4, 3), (64, 64, 128, 4, 4), (128, 64, 64, 8, 4), (128, 128, 64, 8, 4))
    add("feed_backward", (128, 64, 64, 4, 4), (128, 128, 64, 8, 4), (64, 64, 128, 4, 3), feed_split=2)
    add("feed_backward", (128, 64, 64, 4, 5), (128, 64, 128, 4, 3), tma=True)
    add("cell_backward", (64, 32, 64, 4, 3), (32, 64, 64, 4, 3), early=True)
    found |= {"library feed": {"library_feed": True}, "library project": {"library_project": True}}
    return found


def bench_tiles(sizes: list[str], rows: int) -> int:
    """Milliseconds of one layer, forward and backward, and the change against the default."""
    started = time.perf_counter()
    runs = {
        (size, name): Run(size, rows, layers=1, plan=tuple(fields.items()))
        for size in sizes
        for name, fields in _variants().items()
    }
    jobs = {f"{size} {name}": (_smoke, run) for (size, name), run in runs.items()}
    broken = {name for name, result in in_parallel(jobs) if isinstance(result, str)}
    print(f"compiled in {time.perf_counter() - started:.0f} s; {len(broken)} failed", flush=True)
    for size in sizes:
        base = 0.0
        for (of, name), run in runs.items():
            if of != size:
                continue
            ms = "failed" if f"{of} {name}" in broken else _time(lambda r=run: _stack(r), repeat=8)
            base = base or (ms if isinstance(ms, float) else 0.0)
            change = f"{ms:8.3f} {100 * (ms / base - 1):+6.1f}%" if isinstance(ms, float) and base else ms
            print(f"  {size:9s} {rows:5d} {name:52s} {change}", flush=True)
    return 0
