"""What comes with the package: models in `models/NAME`, ready-made task models in `models/tasks/NAME`, by their cards.

The header of a card (README.md) says what it is. Besides the fields that hubs read (license, language), elmokit reads
`data` and `scores`, one line each.
"""

import json
import warnings
from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import ElmokitWarning
from elmokit.weights.load import BUNDLED

TASKS = "tasks"


@dataclass(frozen=True, slots=True)
class Bundled:
    """One model of the package. What its card does not say is empty."""

    name: str
    kind: str  # "model", or the name of the task
    size: int  # bytes on disk
    language: str
    licence: str
    data: str
    scores: str
    folder: Path


def list_bundled(place: Path | None = None) -> list[Bundled]:
    """Models first, then task models, each by name; `place` is another folder than the package's."""
    place = place or BUNDLED
    models = [_read(path.parent, "model") for path in sorted(place.glob("*/config.json"))]
    tasks = [path.parent for path in sorted(place.glob(f"{TASKS}/*/config.json"))]
    return models + [_read(folder, str(_config(folder).get("task") or folder.name)) for folder in tasks]


def bundled_task(name: str, place: Path | None = None) -> Path | None:
    """The folder of the ready-made task model of that name, if there is one."""
    folder = (place or BUNDLED) / TASKS / name
    return folder if name.isidentifier() and (folder / "config.json").is_file() else None


def find_task_model(given: str | Path) -> Path:
    """The folder of a task model. One on this machine wins over a ready-made model of that name, with a note.

    A folder without a model, such as one of data, does not, with a note, too.
    """
    folder, ready = Path(given).expanduser(), bundled_task(str(given))
    if ready is None or folder == ready:
        return folder
    if not folder.is_dir():
        return ready
    if '"elmokit task"' in _text(folder / "config.json"):
        taken, told = folder, f"the folder {given} here is taken, not the model {given} that comes with elmokit"
    else:
        taken, told = ready, f"the folder {given} here holds no model; the one that comes with elmokit is taken"
    warnings.warn(told, ElmokitWarning, stacklevel=3)
    return taken


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _read(folder: Path, kind: str) -> Bundled:
    header = card_header(folder / "README.md")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    measured = _config(folder).get("scores") if kind != "model" else None
    named = measured if isinstance(measured, dict) else {}
    scores = ", ".join(f"{name} {100 * value:.2f}" for name, value in named.items())
    language, licence = header.get("language", ""), header.get("license", "")
    return Bundled(
        folder.name, kind, size, language, licence, header.get("data", ""), header.get("scores", scores), folder
    )


def card_header(card: Path) -> dict[str, str]:
    """The fields of one line between the card's first two lines of dashes."""
    if not card.is_file():
        return {}
    lines = card.read_text(encoding="utf-8").split("\n")
    if lines[0] != "---" or "---" not in lines[1:]:
        return {}
    pairs = (line.partition(": ") for line in lines[1 : lines.index("---", 1)])
    return {name: value.strip().strip('"') for name, colon, value in pairs if colon and not name.startswith((" ", "-"))}


def _config(folder: Path) -> dict[str, object]:
    found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {}
