"""How quick the explorer's page is, and whether axe-core finds fault with it. Needs chromium and playwright.

    npm install --prefix /somewhere axe-core@4      # outside the tree; leave out --axe to do without
    PYTHONPATH=src python benchmarks/explorer.py --axe /somewhere/node_modules/axe-core/axe.min.js

Measures in headless Chromium without a GPU: seconds from opening the address to the first view in use; frames a second
while 20,000 points are selected with a lasso, and while they move from layer to layer; milliseconds from the click on a
layer to its first frame.
"""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from elmokit.encoders import Elmo
from elmokit.index import Index, IndexSettings

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
SAMPLE = Path(__file__).resolve().parents[1] / "src" / "elmokit" / "cli" / "sample.txt"
FRAMES = """() => { window.frames_ = []; let last = performance.now(); window.counting_ = true;
  const tick = (now) => { frames_.push(now - last); last = now; if (counting_) requestAnimationFrame(tick); };
  requestAnimationFrame(tick); }"""
CHANGE = """async (name) => { const frame = () => new Promise(requestAnimationFrame);
  const tick = [...document.querySelectorAll('.ticks button')].find((one) => one.textContent === name);
  await frame(); const began = performance.now(); tick.click();
  await frame(); await frame(); return performance.now() - began; }"""
VIEWS = {
    "sentence": "", "blank": "?view=blank", "word": "?view=word&word=the", "change": "?view=change&least=2&word=the",
    "tasks": "?view=tasks", "model": "?view=model",
}  # fmt: skip


def make_indexes(folder: Path, points: int) -> list[Path]:
    """One with so many occurrences of `the`, every layer kept, and a small one to compare it with."""
    words = sorted({word for word in SAMPLE.read_text(encoding="utf-8").split() if word.isalpha()})
    draw = random.Random(0)
    elmo = Elmo.from_pretrained()
    made = []
    for name, count in (("large", points), ("small", 200)):
        sentences = [["the", *draw.sample(words, 2)] for _ in range(count)]
        settings = IndexSettings(layers="concat:0..2", words=("the",))
        Index.build(elmo, sentences, folder / name, settings=settings, name=f"{name}.txt (0)")
        made.append(folder / name)
    return made


def settled(page: Any) -> None:
    page.wait_for_selector("main h1")
    page.wait_for_timeout(150)
    page.wait_for_selector("main:not([aria-busy])", timeout=300_000)


def rate(page: Any, work: Any) -> tuple[float, float]:
    """Frames a second while something is done, and the time that 95% of the frames stay below, in ms."""
    page.evaluate(FRAMES)
    work()
    frames = sorted(page.evaluate("() => { counting_ = false; return frames_; }")[2:])
    return 1000 * len(frames) / sum(frames), frames[int(0.95 * (len(frames) - 1))]


def lasso(page: Any) -> None:
    box = page.locator(".cloud canvas.over").bounding_box()
    x, y, w, h = box["x"], box["y"], box["width"], box["height"]
    page.mouse.move(x + 0.2 * w, y + 0.2 * h)
    page.mouse.down()
    for a, b in ((0.8, 0.2), (0.8, 0.8), (0.2, 0.8), (0.25, 0.25), (0.7, 0.3)):
        page.mouse.move(x + a * w, y + b * h, steps=40)
    page.mouse.up()


def morph(page: Any) -> None:
    for _ in range(2):
        for name in ("lstm1", "lstm2"):
            page.locator(".ticks button", has_text=name).click()
            page.wait_for_timeout(500)


def measure(page: Any, address: str) -> None:
    visits = []
    for _ in range(5):
        began = time.perf_counter()
        page.goto(address)
        page.wait_for_selector(".words button.focus")
        page.wait_for_selector("image.pixels")
        visits.append(time.perf_counter() - began)
        settled(page)
    print(f"first view in use             {visits[0]:6.2f} s (later visits, median {sorted(visits[1:])[2]:.2f})")
    changes = sorted(page.evaluate(CHANGE, name) for name in ("token", "lstm1", "lstm2") * 5)
    print(f"layer change, sentence        {changes[len(changes) // 2]:6.0f} ms (median; slowest {changes[-1]:.0f})")
    page.goto(address + VIEWS["word"])
    settled(page)
    print(page.locator(".note", has_text="occurrences of").inner_text())
    page.locator(".cloud").scroll_into_view_if_needed()
    changes = sorted(page.evaluate(CHANGE, name) for name in ("token", "lstm1", "lstm2") * 5)
    print(f"layer change, all points      {changes[len(changes) // 2]:6.0f} ms (median; slowest {changes[-1]:.0f})")
    for what, work in (("lasso", lasso), ("morph", morph)):
        frames, slow = rate(page, lambda work=work: work(page))
        print(f"{what} over all points          {frames:6.1f} frames/s (95% within {slow:.0f} ms)")


def check(page: Any, address: str, source: str) -> int:
    """axe-core over every view, light and dark: serious and critical findings."""
    bad = 0
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        for name, query in VIEWS.items():
            page.goto(address + query)
            settled(page)
            page.evaluate(source)
            found = page.evaluate("async () => (await axe.run()).violations")
            for one in found:
                bad += one["impact"] in ("serious", "critical")
                print(f"axe, {name}, {theme}: {one['impact']} {one['id']}: {one['nodes'][0]['html'][:140]}")
    print(f"axe-core: {bad} serious or critical findings in {len(VIEWS)} views, light and dark")
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axe", type=Path, help="axe.min.js of axe-core")
    parser.add_argument("--points", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        indexes = make_indexes(Path(folder), options.points)
        command = [sys.executable, "-m", "elmokit", "explore", "--no-open", *map(str, indexes)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[2]
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(300_000)
            measure(page, address)
            bad = check(page, address, options.axe.read_text(encoding="utf-8")) if options.axe else 0
            browser.close()
        finally:
            server.terminate()
            server.wait()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
