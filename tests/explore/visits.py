"""The command as a process, and a page that remembers what went wrong on it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

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
        assert "http://" in line, f"no address: {line!r}, exit status {self.process.poll()}"
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
