"""The command as a process, and a page that remembers what went wrong on it."""

import csv
import io
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
PATIENCE = 90_000  # milliseconds


class Server:
    """`elmokit explore` as a process of its own."""

    def __init__(self, *arguments: object, port: int = 0) -> None:
        command = [sys.executable, "-m", "elmokit", "explore", "--no-open", "--port", str(port), "--device", "cpu"]
        self.process = subprocess.Popen([*command, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()  # said when it can be reached; empty if it has ended
        if "http://" not in line:
            raise AssertionError(f"no address: {line!r}, exit status {self.stop()}")
        self.address = line.split()[2]

    @property
    def port(self) -> int:
        return int(self.address.split(":")[2].partition("/")[0])

    def stop(self) -> int:
        self.process.terminate()
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


class Visit:
    """A page, and what went wrong on it."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.address, self.wrong = address, list[str]()
        self.page.on("console", lambda m: self.wrong.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("requestfailed", self._failed)
        self.page.on("response", lambda r: self.wrong.append(f"{r.status} {r.url}") if r.status >= 400 else None)

    def _failed(self, request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # which is how a question ends that a newer one replaces
            self.wrong.append(f"{request.failure} {request.url}")

    def go(self, query: str = "") -> Any:
        self.page.goto(self.address + query)
        return self.settled()

    def settled(self) -> Any:
        """When nothing is asked of the server any more."""
        self.page.wait_for_selector("main h1")
        self.page.wait_for_timeout(120)
        self.page.wait_for_selector("main:not([aria-busy])")
        return self.page

    def saved(self, card: str, label: str) -> bytes:
        """The file that a card's button saves."""
        with self.page.expect_download() as download:
            self.page.get_by_role("region", name=card, exact=True).get_by_role("button", name=f"as {label}").click()
        return Path(download.value.path()).read_bytes()


def rows_of(file: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(file.decode("utf-8-sig"))))


def state_of(page: Any) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def lines_of(page: Any) -> int:
    """How many lines the concordance lists."""
    return int(page.get_by_role("table", name="Concordance").get_attribute("aria-rowcount")) - 1


def until(page: Any, holds: Callable[[int], bool]) -> int:
    """The number of lines, when it is what was expected; a pointer's way takes a frame or two to be heard."""
    ends = time.monotonic() + 60
    while not holds(lines_of(page)) and time.monotonic() < ends:
        page.wait_for_timeout(30)
    assert holds(lines_of(page)), lines_of(page)
    return lines_of(page)


def drag(page: Any, path: list[tuple[float, float]]) -> None:
    """Over the cloud, in parts of its width and height."""
    page.locator(".cloud canvas.over").scroll_into_view_if_needed()
    box = page.locator(".cloud canvas.over").bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in path]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=4)
    page.mouse.up()
