"""The pictures of the explorer in README.md and docs/explorer.md: docs/images/explorer-*.png. Takes some minutes.

    PYTHONPATH=src python docs/make_screenshots.py
    PYTHONPATH=src python docs/make_screenshots.py --all FOLDER --indexes books news --task ner-model

Needs chromium, playwright and pillow, and the corpora in ../shared, of which it makes the two indexes of
docs/explorer.md, unless others are given. With --all, every view is taken at 1280 and at 400 pixels, light and dark.
What else is given goes to `elmokit explore`.
"""

import argparse
import lzma
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
CORPORA = ROOT.parent / "shared" / "corpora"
WORDS = (
    "cell", "broadcast", "virus", "plane", "network", "record", "mouse", "engine", "press", "strike", "star", "bank",
    "charge", "party", "station",
)  # fmt: skip
SHOWN = {  # in README.md, with their heights
    "sentence": ("", 760),
    "word": ("?view=word&word=cell&index={second}", 860),
    "change": ("?view=change&word=cell", 860),
}
ALL = {
    "sentence": "",
    "blank": "?view=blank",
    "scored": "?view=blank&text=He drank a cup of hot algebra.",
    "word": "?view=word&index={second}",
    "change": "?view=change&word=cell",
    "tasks": "?view=tasks",
    "model": "?view=model",
}
READ = 60_000_000  # bytes of a corpus
LINES, LONGEST = 120, 600  # of each word; characters


def make_indexes(folder: Path) -> list[Path]:
    """Those of docs/explorer.md: up to 120 lines for each of some words, from books and from news."""
    (folder / "words.txt").write_text(" ".join(WORDS), encoding="utf-8")
    made = []
    for name in ("gutenberg", "wikinews"):
        source = CORPORA / f"{name}.txt.xz"
        if not source.is_file():
            sys.exit(f"{source}: no such file; give two indexes with --indexes")
        (folder / f"{name}.txt").write_text("".join(choose_lines(source)), encoding="utf-8")
        run("index", folder / f"{name}.txt", "-o", folder / name, "--words", folder / "words.txt")
        made.append(folder / name)
    return made


def choose_lines(source: Path) -> list[str]:
    found, counts, read = list[str](), Counter[str](), 0
    wanted = re.compile(rf"\b(?:{'|'.join(WORDS)})\b")
    with lzma.open(source, "rt", encoding="utf-8") as lines:
        for line in lines:
            read += len(line.encode())
            if read > READ:
                break
            if len(line) <= LONGEST and wanted.search(line):
                words = (re.sub("[^a-z]", "", word.lower()) for word in line.split())
                word = next((word for word in words if word in WORDS and counts[word] < LINES), None)
                if word is not None:
                    counts[word] += 1
                    found.append(line)
    return found


def run(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "elmokit", *map(str, arguments)], check=True)


def take(page: Any, address: str, path: Path, *, whole: bool) -> None:
    """A picture of a view when it has all its numbers, in 128 colours."""
    page.goto(address)
    page.wait_for_selector("main h1")
    page.wait_for_timeout(700)
    page.wait_for_selector("main:not([aria-busy])")
    page.wait_for_timeout(900)  # points move to their places
    if not whole and page.locator("table[aria-label='Words by change']").count():  # the table, and all of the cloud
        page.evaluate("document.querySelector('.cloud + .row').scrollIntoView({ block: 'end' })")
        page.wait_for_timeout(300)
    page.screenshot(path=path, full_page=whole)
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(128, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
    print(f"{path}  {path.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="take every view, and leave docs/images as it is")
    parser.add_argument("--indexes", nargs=2, type=Path, help="an older and a newer text")
    options, others = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        first, second = options.indexes or make_indexes(Path(folder))
        command = [sys.executable, "-m", "elmokit", "explore", "--no-open", str(first), str(second), *others]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[2]
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            if options.all:
                options.all.mkdir(parents=True, exist_ok=True)
            for theme in ("light", "dark") if options.all else ("light",):
                for width in (1280, 400) if options.all else (1180,):
                    page = browser.new_page(color_scheme=theme, viewport={"width": width, "height": 860})
                    page.set_default_timeout(300_000)
                    if options.all:
                        for name, query in ALL.items():
                            path = options.all / f"{name}-{width}-{theme}.png"
                            take(page, address + query.format(second=second.name), path, whole=True)
                    else:
                        for name, (query, height) in SHOWN.items():
                            page.set_viewport_size({"width": width, "height": height})
                            path = IMAGES / f"explorer-{name}.png"
                            take(page, address + query.format(second=second.name), path, whole=False)
                    page.close()
            browser.close()
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
