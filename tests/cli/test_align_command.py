"""`elmokit align` as a user meets it."""

import json
import resource
from pathlib import Path

import numpy as np
import pytest

import models
from elmokit.weights import save_pretrained


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    words = [f"{a}{b}" for a in ("ba", "ko", "lu", "mi") for b in ("na", "ter", "sol", "ri", "1")]
    paths = tmp_path / "one.txt", tmp_path / "other.txt"
    for seed, path in enumerate(paths):
        rng = np.random.default_rng(seed)
        path.write_text("".join(f"{' '.join(rng.choice(words, 8))} .\n" for _ in range(80)), encoding="utf-8")
    return paths


def test_align_then_embed(cli, texts: tuple[Path, Path], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folders = [save_pretrained(models.tiny(seed=k).pretrained, tmp_path / f"model{k}") for k in (0, 1)]
    given = ("align", *folders, "--source-text", texts[0], "--target-text", texts[1], "--same-text", texts[1])
    done = cli(*given)
    assert done.code == 0, done.err
    assert "seed: 16 identical words and numbers" in done.out
    assert "translation of 4 words that were held out" in done.out
    assert "the same place in" in done.out
    made = folders[0] / "aligned" / "model1"
    assert f"-m aligned:{made}" in done.err
    assert "(alignment)" in cli("verify", made).out
    done = cli(*given, "--json", "-o", tmp_path / "map", "--lexicon", tmp_path / "lexicon.txt")
    entries = [line.split("\t") for line in (tmp_path / "lexicon.txt").read_text(encoding="utf-8").splitlines()]
    assert len(entries) == 20
    assert all(len(entry) == 3 and -2 <= float(entry[2]) <= 4 for entry in entries)
    (tmp_path / "tested.txt").write_text("bana bana\nkori lusol\nnothing bana\n", encoding="utf-8")
    listed = cli(*given[:-2], "-o", tmp_path / "map2", "--test-words", tmp_path / "tested.txt")
    assert "seed: 14 identical words and numbers" in listed.out
    assert f"translation of 2 words of {tmp_path / 'tested.txt'}" in listed.out
    records = [json.loads(line) for line in done.out.splitlines()]
    assert records[-1]["seed_pairs"] == 16
    assert {r["layer"] for r in records if "layer" in r} >= {"all"}
    done = cli("embed", "kori bana", "-m", f"aligned:{made}")
    assert done.code == 0, done.err


def test_what_is_refused(cli, texts: tuple[Path, Path], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder = save_pretrained(models.tiny().pretrained, tmp_path / "model")
    text = ("--source-text", texts[0], "--target-text", texts[1])
    (tmp_path / "list").write_text("one two three\n")
    for given, said in (
        (("en", folder, *text), "say where with -o FOLDER"),
        ((folder, folder, *text, "--words", tmp_path / "list"), "expected two words"),
        ((folder, folder, *text, "--min-count", 10_000), "fewer than two words"),
        ((folder, tmp_path / "nothing", *text), "no model"),
        ((folder, folder, *text[:3], tmp_path / "nothing"), "nothing: no such file or folder"),
    ):
        done = cli("align", *given)
        assert (done.code, done.err.count("\n")) == (2, 1), done.err
        assert said in done.err
    done = cli("embed", "text", "-m", f"aligned:{tmp_path}")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "holds no alignment" in done.err


def test_a_file_that_cannot_grow(cli, texts: tuple[Path, Path], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """One line that names the folder, and the maps that were there stay as they were."""
    folders = [save_pretrained(models.tiny(seed=k).pretrained, tmp_path / f"model{k}") for k in (0, 1)]
    given = ("align", *folders, "--source-text", texts[0], "--target-text", texts[1], "-o", tmp_path / "map")
    assert cli(*given).code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "map").iterdir()}
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256, allowed[1]))
    try:
        done = cli(*given)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, allowed)
    assert done.code == 2
    assert f"{tmp_path / 'map'}: cannot be written: File too large" in done.err
    assert {path.name: path.read_bytes() for path in (tmp_path / "map").iterdir()} == before
    assert not list(tmp_path.glob(".*"))
