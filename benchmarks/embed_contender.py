"""A contender of benchmarks/embed.py, seen from the one who asks: a process, and what was measured of it."""

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def say(message: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {message}", file=sys.stderr, flush=True)


BUSY = "import numpy as np; a = np.ones((600, 600), np.float32)\nwhile True: a @ a"


def keep_busy(count: int) -> list["subprocess.Popen[bytes]"]:
    """Processes that multiply matrices in one thread each until they are killed."""
    around = {**os.environ, **{f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}}
    return [subprocess.Popen([sys.executable, "-c", BUSY], env=around) for _ in range(count)]


def stop_busy(processes: list["subprocess.Popen[bytes]"]) -> None:
    for process in processes:
        process.kill()
        process.wait()


@dataclass
class Contender:
    """A process and what was measured of it."""

    group: str
    name: str
    command: list[str]
    batches: tuple[int | None, ...]
    process: "subprocess.Popen[str] | None" = None
    told: str = ""
    mode: str = ""  # the number type it chose
    missing: str = ""
    seconds: dict[int | None, list[float]] = field(default_factory=dict)  # by batch, one per round
    peak: dict[int | None, int] = field(default_factory=dict)
    milliseconds: list[list[float]] = field(default_factory=list)  # one list per round

    @property
    def key(self) -> tuple[str, str]:
        return self.group, self.name

    def start(self) -> bool:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, text=True)
        answer = self._answer()
        self.told, self.mode, self.missing = (answer.get(name, "") for name in ("told", "mode", "why"))
        say(f"{self.group}, {self.name}: {self.missing or self.told}")
        if self.missing:
            self.stop()
        return not self.missing

    def ask(self, do: str, sentences: Path, **more: Any) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, "sentences": str(sentences), **more}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def stop(self) -> None:
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait(timeout=60)
            self.process = None

    def best(self) -> int | None:
        """The batch with the least median time."""
        return min(self.seconds, key=lambda batch: statistics.median(self.seconds[batch]))

    def _answer(self) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            return {"why": f"ended with {self.process.wait()} before it answered"}
        answer: dict[str, Any] = json.loads(line)
        return answer
