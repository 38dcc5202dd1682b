"""`elmokit wsd` and `elmokit pairs` from files to tables."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
INDEX = "bank%1:14:00:: 08420278 2 20\nbank%1:17:01:: 09213565 1 25\n"
SEMCOR = """\
The\tthe\tDT\t_
bank\tbank\tNN\tbank%1:14:00::
paid\tpay\tVB\t_

A\ta\tDT\t_
river\triver\tNN\t_
bank\tbank\tNN\tbank%1:17:01::

"""
DATA = """\
<corpus lang="en"><text id="d0"><sentence id="d0.s0">
<wf lemma="the" pos="DET">The</wf><instance id="d0.s0.t0" lemma="bank" pos="NOUN">bank</instance>
<wf lemma="pay" pos="VERB">paid</wf></sentence></text></corpus>
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    wic = "{}\tbank\tN\t1-2\tthe bank paid\ta river bank\n"
    scws = "1\tbank\tn\tbank\tn\tthe <b> bank </b> paid\t{}\t{}\n"
    files = {
        "index.sense": INDEX,
        "semcor.tsv": SEMCOR,
        "data.xml": DATA,
        "gold.txt": "d0.s0.t0 bank%1:14:00::\n",
        "train.tsv": wic.format("F") + "T\tbank\tN\t1-1\tthe bank paid\tthe bank paid\n",
        "dev.tsv": wic.format("F"),
        "ratings.txt": scws.format("the <b> bank </b> paid", "9") + scws.format("a river <b> bank </b>", "2"),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_wsd(cli: Cli, folder: Path, model_folder: Path) -> None:
    done = cli(
        "wsd", folder / "semcor.tsv", "--index", folder / "index.sense", "--data", folder / "data.xml",
        "--gold", folder / "gold.txt", "-m", model_folder, "--output", folder / "out.json", "--device", "cpu",
    )  # fmt: skip
    assert done.code == 0, done.err
    rows = {row["layers"]: row for row in json.loads((folder / "out.json").read_text(encoding="utf-8"))}
    assert list(rows) == ["0 token", "1 lstm1", "2 lstm2", "average", "first sense", "most frequent"]
    assert rows["1 lstm1"]["covered"] == rows["average"]["all"] == 100
    assert rows["first sense"]["covered"] == 0  # the river's is WordNet's first
    assert "1 covered" in done.out


def test_wsd_with_keys_of_another_wordnet(cli: Cli, folder: Path, model_folder: Path) -> None:
    (folder / "index.sense").write_text("dog%1:05:00:: 02084071 1 42\n", encoding="utf-8")
    given = ("--index", folder / "index.sense", "--data", folder / "data.xml", "--gold", folder / "gold.txt")
    done = cli("wsd", folder / "semcor.tsv", *given, "-m", model_folder)
    assert done.code == 2
    assert "belong to another WordNet" in done.err


def test_pairs(cli: Cli, folder: Path, model_folder: Path) -> None:
    out = folder / "out.json"
    given = ("-m", model_folder, "--layers", "each", "--output", out, "--device", "cpu")
    done = cli("pairs", folder / "ratings.txt", *given)
    assert done.code == 0, done.err
    rows = json.loads(out.read_text(encoding="utf-8"))
    assert [row["correlation"] for row in rows] == pytest.approx([0, 100, 100])  # layer 0: all alike
    done = cli("pairs", folder / "train.tsv", folder / "dev.tsv", *given)
    assert done.code == 0, done.err
    assert "1 pairs, fitted on 2" in done.out
    rows = json.loads(out.read_text(encoding="utf-8"))
    assert [row["accuracy"] for row in rows][1:] == [100, 100]
    done = cli("pairs", folder / "train.tsv", *given)
    assert "one file of SCWS's ratings, or two of WiC's" in done.err


def test_pairs_chart(cli: Cli, folder: Path, model_folder: Path) -> None:
    pytest.importorskip("altair", reason="charts need altair: pip install 'elmokit[plots]'")
    chart = folder / "pairs.svg"
    done = cli("pairs", folder / "ratings.txt", "-m", model_folder, "--plot", chart, "--device", "cpu")
    assert done.code == 0, done.err
    assert "100.0" in chart.read_text(encoding="utf-8")
