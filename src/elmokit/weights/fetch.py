"""Models of the catalogue, and single files, fetched once into the cache.

As the hub's library lays its cache out, each model has a folder of its own:

    $ELMOKIT_CACHE/hub/models--allennlp--original/
        snapshot/       the model's files; there when they are complete and could be loaded
        source.json     where each came from, its length, the server's mark of it
        *.incomplete    what a broken connection left; the next call continues it
"""

import hashlib
import json
import shutil
from dataclasses import asdict
from pathlib import Path

from elmokit.errors import WeightsError
from elmokit.formats.atomic import folder_lock, write_text
from elmokit.formats.cache import open_cache
from elmokit.weights._archive import is_archive, unpack
from elmokit.weights._folder import ReadOptions, read_folder
from elmokit.weights.catalogue import LISTING, Entry, places_of, read_listing
from elmokit.weights.download import Fetched, download, offline, progress

DONE, DRAFT, ORIGIN = "snapshot", "draft", "source.json"


def fetch_model(entry: Entry, *, local_files_only: bool = False) -> Path:
    """The folder of a model's files, from the cache or the web."""
    with open_cache("hub") as cache:
        home = cache / f"models--{entry.name.replace(':', '--')}"
        if (home / DONE).is_dir():
            return home / DONE
        if local_files_only or (switch := offline()):
            why = "only local files were asked for" if local_files_only else f"{switch} is set"
            raise WeightsError(f"{entry.name}: not in the cache {cache}, and {why}; fetch it once while online")
        home.mkdir(parents=True, exist_ok=True)
        with folder_lock(home):  # others who want it wait
            if not (home / DONE).is_dir():
                _fetch_into(home, entry)
        return home / DONE


def _fetch_into(home: Path, entry: Entry) -> None:
    draft = home / DRAFT
    came: dict[str, Fetched] = {}
    for addresses in entry.files:
        name = addresses[0].rpartition("/")[2]
        with progress(f"{entry.name} {name}") as told:
            came[name] = download(addresses, home / name, told=told)
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        for name in came:
            if is_archive(home / name):
                unpack(home / name, draft)
            else:
                (home / name).rename(draft / name)
        read_folder(draft, ReadOptions(), source=entry.name)
    except WeightsError as error:
        shutil.rmtree(draft)
        origin = " and ".join(found.address for found in came.values())
        raise WeightsError(f"{entry.name}: what came from {origin} is not a model that can be read: {error}") from None
    finally:
        for name in came:
            (home / name).unlink(missing_ok=True)
    write_text(home / ORIGIN, json.dumps({name: asdict(found) for name, found in came.items()}, indent=2) + "\n")
    draft.rename(home / DONE)


def fetch_file(address: str) -> Path:
    """One file by its address, from the cache or the web. Many models' files have the same names: a folder each."""
    with open_cache("hub") as cache:
        home = cache / f"files--{hashlib.sha256(address.encode()).hexdigest()[:16]}"
        kept = home / (address.partition("?")[0].rpartition("/")[2] or "file")
        if kept.is_file():
            return kept
        home.mkdir(parents=True, exist_ok=True)
        with folder_lock(home), progress(kept.name) as told:
            if not kept.is_file():
                download(places_of(address), kept, told=told)
        return kept


def fetch_listing() -> list[Entry]:
    """What NLPL's repository lists beyond the table, asked anew each time."""
    with open_cache("hub") as cache:
        place = cache / "nlpl-20.json"
        place.unlink(missing_ok=True)
        download([LISTING], place, attempts=1)
        try:
            return read_listing(json.loads(place.read_text(encoding="utf-8")))
        except ValueError as error:
            raise WeightsError(f"{LISTING}: not JSON ({error})") from None
