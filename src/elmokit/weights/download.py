"""Files from the web, by HTTP: resumed where a connection broke, checked for length, whole or not at all.

A file that is not complete yet lies beside its place as `NAME.incomplete`, with `NAME.incomplete.json` for the server's
mark of the file it belongs to. The next call asks for the rest of it. Proxies are those of the environment
(http_proxy, https_proxy, no_proxy). ELMOKIT_OFFLINE=1 or HF_HUB_OFFLINE=1 forbids any connection.
"""

import contextlib
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elmokit.errors import WeightsError

OFFLINE = ("ELMOKIT_OFFLINE", "HF_HUB_OFFLINE")
CHUNK = 1 << 18
TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 4  # connections that may break without one new byte between them
PAUSE = 0.5  # seconds before the second attempt, twice as long before each later one
PAGES = ("text/html", "application/xhtml+xml")  # what servers send where a file is gone

Told = Callable[[int, int | None], None]  # bytes there, bytes in all where the server says so


@dataclass(frozen=True, slots=True)
class Fetched:
    """Where a file came from."""

    address: str
    length: int
    mark: str | None  # by which its server knows this file from a later one: ETag, or Last-Modified


def offline() -> str | None:
    """The environment variable that forbids connections, if one does."""
    return next((name for name in OFFLINE if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")), None)


def download(
    addresses: Sequence[str], target: Path, *, told: Told = lambda there, total: None, attempts: int = ATTEMPTS
) -> Fetched:
    """Fetches a file from the first address that has it. `target` appears when it is complete."""
    if switch := offline():
        raise WeightsError(f"{addresses[0]}: not fetched, because {switch} is set; unset it to fetch the file")
    reasons = []
    for address in addresses:
        if not re.match(r"https?://", address):
            raise WeightsError(f"{address}: not an address of the web; expected http:// or https://")
        try:
            return _fetch(address, target, told, attempts)
        except _GoneError as error:
            reasons.append(f"{address}: {error}")
    raise WeightsError(f"{'; '.join(reasons)}; get the file elsewhere and give its path")


class _GoneError(Exception):
    """This address does not have the file; another one may."""


def _fetch(address: str, target: Path, told: Told, attempts: int) -> Fetched:
    part = target.with_name(f"{target.name}.incomplete")
    failed = 0
    while True:
        before = _size(part)
        try:
            found = _continue(address, part, told)
            os.replace(part, target)
            _note(part).unlink(missing_ok=True)
            return found
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
                if error.code not in (408, 429) and error.code < 500:
                    raise _GoneError(f"the server says {error.code} {error.reason}") from None
            failed = 0 if _size(part) > before else failed + 1
            if failed >= attempts:
                raise _GoneError(_reason(error, part)) from None
            time.sleep(PAUSE * 2**failed if failed else 0)
        except OSError as error:  # of the disk
            raise WeightsError(f"{part}: cannot be written ({error.strerror or error}); {_kept(part)}") from None


def _continue(address: str, part: Path, told: Told) -> Fetched:
    """The rest of a file, or all of it where the server cannot continue or has another file now."""
    there, known = _size(part), _read_note(part)
    headers = {"User-Agent": "elmokit", "Accept-Encoding": "identity"}
    if there and known is not None and known.address == address and known.mark:
        headers |= {"Range": f"bytes={there}-", "If-Range": known.mark}
    else:
        there = 0
    try:
        request = urllib.request.Request(address, headers=headers)
        response = urllib.request.build_opener().open(request, timeout=TIMEOUT)  # with the proxies of this moment
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        error.close()  # there is no byte beyond those that are here: complete, or another file
        if known is not None and there == known.length:
            return known
        _forget(part)
        raise urllib.error.URLError("the part of the file that is here does not belong to it; begun again") from None
    with response:
        if response.headers.get_content_type() in PAGES:
            raise _GoneError("a web page came instead of the file")
        there, total = _position(response, there)
        etag = response.headers.get("ETag") or "W/"
        mark = response.headers.get("Last-Modified") if etag.startswith("W/") else etag  # a weak one names no bytes
        known = Fetched(address, -1 if total is None else total, mark)
        part.parent.mkdir(parents=True, exist_ok=True)
        if not there:
            _forget(part)
        _note(part).write_text(json.dumps(asdict(known)), encoding="utf-8")
        with part.open("ab") as file:
            told(there, total)
            while data := response.read(CHUNK):
                file.write(data)
                there += len(data)
                told(there, total)
    if total is not None and there < total:
        raise http.client.IncompleteRead(b"", total - there)
    if total is not None and there > total:
        _forget(part)
        raise _GoneError(f"{there:,} bytes came, but the server said {total:,}")
    return Fetched(address, there, known.mark)


def _position(response: Any, there: int) -> tuple[int, int | None]:
    """From which byte on the answer is, and how long the whole file is."""
    length = response.headers.get("Content-Length")
    if response.status != 206:
        return 0, None if length is None else int(length)
    span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range") or "")
    if span is None or int(span[1]) != there:
        raise _GoneError("the server sent another part of the file than was asked for")
    return there, None if span[2] == "*" else int(span[2])


def _reason(error: Exception, part: Path) -> str:
    why = getattr(error, "reason", None) or error
    if isinstance(error, http.client.IncompleteRead):
        why = "the connection ended before the file did"
    return f"{why}; {_kept(part)}"


def _kept(part: Path) -> str:
    size = _size(part)
    return f"{size:,} bytes are kept and the next call continues after them" if size else "nothing was fetched"


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def _note(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _read_note(part: Path) -> Fetched | None:
    try:
        return Fetched(**json.loads(_note(part).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)


@contextlib.contextmanager
def progress(what: str) -> Iterator[Told]:
    """A bar on standard error, where that is a terminal."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from elmokit._bars import Bar
    from elmokit._terminal import Console

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda there, total: bar.update(task, completed=there, total=total)
