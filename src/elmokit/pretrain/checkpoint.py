"""Checkpoints: complete, written whole or not at all, rotated, checked when read, through torch's weights-only reader.

One file holds weights, optimizer, carried LSTM state and data position. There is no random state to keep: every step
draws from generators seeded by (seed, step), so a step's randomness is known without history.
"""

import errno
import re
import shutil
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch

from elmokit.errors import ElmokitError, ElmokitWarning, InputError
from elmokit.formats.atomic import atomic_write
from elmokit.weights.storage import read_state

PARTS = {"fingerprint": str, "progress": dict, "objective": dict, "optimizer": dict, "state": list}
NAME = re.compile(r"step-(\d+)\.pt")


def save_checkpoint(folder: Path, step: int, content: dict[str, Any], *, keep: int) -> Path:
    """Writes the checkpoint of a step; removes those of later steps and all but the newest `keep`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _name(step)
    try:
        with atomic_write(path) as file:
            torch.save(content, file)
    except (OSError, RuntimeError, InputError) as error:  # torch's zip writer makes a RuntimeError of a failed write
        raise write_error(error, path, folder) from error
    there = checkpoints(folder)
    end = there.index(path) + 1
    for old in there[: max(0, end - max(1, keep))] + there[end:]:
        old.unlink(missing_ok=True)
    return path


def checkpoints(folder: Path) -> list[Path]:
    """All complete checkpoints, oldest first."""
    return sorted(path for path in folder.glob("step-*.pt") if NAME.fullmatch(path.name))


class Checkpoint(NamedTuple):
    """What a checkpoint holds, and where it was read."""

    path: Path
    content: dict[str, Any]


def load_checkpoint(folder: Path, device: torch.device, *, before: int | None = None) -> Checkpoint | None:
    """The newest whole checkpoint, or None where there is none; damaged ones are skipped with a warning.

    With `before`, of an earlier step than that.
    """
    there = [path for path in checkpoints(folder) if before is None or path.name < _name(before)]
    for path in reversed(there):
        try:
            return Checkpoint(path, read_state(path, device, PARTS))
        except Exception as error:  # whatever a damaged archive leads to: the next older one may be whole
            why = (str(error).splitlines() or [type(error).__name__])[0]
            warnings.warn(f"{path}: is damaged ({why}); trying an older checkpoint", ElmokitWarning, stacklevel=2)
    if there:
        raise ElmokitError(f"{folder}: all checkpoints are damaged; start again with another output folder")
    return None


def _name(step: int) -> str:
    return f"step-{step:09d}.pt"


def check_text(checkpoint: Checkpoint, fingerprint: str, run: Path) -> None:
    """Refuses to resume a run on other text than that of its checkpoint."""
    there = checkpoint.content["fingerprint"]
    if there != fingerprint:
        raise ElmokitError(
            f"{run}: holds a run on other text (its prepared form was {there}, now it is {fingerprint}); give the text "
            "of that run to resume it, or another output folder"
        )


def write_error(error: BaseException, path: Path, folder: Path) -> ElmokitError:
    """The error for a run's file that cannot be written; it names the last good checkpoint in `folder`."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
    why = str((cause.strerror if isinstance(cause, OSError) else None) or error)
    advice = "Put that right and run the same command again, or choose another output folder"
    if full:
        free = shutil.disk_usage(next(place for place in (path, *path.absolute().parents) if place.is_dir())).free
        why = f"the disk is full ({free / 2**20:.0f} MiB free)"
        advice = "Make room and run the same command again"
    left = checkpoints(folder)
    last = f"the last good checkpoint is {left[-1].name}" if left else "there is no earlier checkpoint"
    return ElmokitError(f"{path}: cannot be written: {why}; {last}. {advice}")
