"""Ablation: what is trained, that nothing is trained twice, and what the report says of it."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import models
from elmokit.encoders import Elmo
from elmokit.errors import ConfigError, InputError
from elmokit.tasks.ablate.report import curve_of, draw_report, markdown, summarise, table_of, write_report
from elmokit.tasks.ablate.run import (
    VARIANTS,
    WITHOUT,
    Cell,
    CellResult,
    Plan,
    Variant,
    curve_variants,
    pick_variants,
    run_ablation,
    take_share,
)
from elmokit.tasks.classify.task import CLASSIFY, TextExample
from elmokit.tasks.layers import CachedLayers
from elmokit.tasks.run import Listener, taken
from elmokit.tasks.saved import LearnedMix
from elmokit.tasks.setup import Setup, load_setup
from elmokit.tasks.train import Epoch
from elmokit.text import Sentence

MIX_INPUT = pick_variants(["mix-input"])[0]


def small_setup(**changes: Any) -> Setup:
    small = {"word_dim": 4, "hidden": 4, "head_width": 4, "integrators": 1, "epochs": 2, "batch_size": 16}
    return load_setup(CLASSIFY, flags={**small, **changes})


def examples(n: int) -> list[TextExample]:
    words = ["good", "bad", "cat", "mat", "the"]
    pairs = [(words[k % 2], words[2 + k % 3]) for k in range(n)]
    return [TextExample(Sentence.of(pair), "yes" if pair[0] == "good" else "no") for pair in pairs]


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(models.tiny().pretrained, device="cpu")


def run(folder: Path, elmo: Elmo, plan: Plan, *, setup: Setup | None = None, **more: Any) -> list[CellResult]:
    train, dev = examples(40), examples(10)
    layers = CachedLayers.of(elmo, (e.sentence for e in (*train, *dev)))
    return run_ablation(
        CLASSIFY,
        setup or small_setup(),
        train,
        dev,
        plan=plan,
        folder=folder,
        encoder=elmo,
        layers=layers,
        device="cpu",
        **more,
    )


def test_every_cell_is_trained_once_and_kept(tmp_path: Path, elmo: Elmo) -> None:
    plan = Plan(variants=VARIANTS, seeds=(1,), shares=(0.1, 1.0), curve=(WITHOUT, MIX_INPUT))
    begun: list[Cell] = []
    heard: list[int] = []
    results = run(
        tmp_path,
        elmo,
        plan,
        setup=small_setup(epochs=1),
        begun=begun.append,
        told=lambda so_far: heard.append(len(so_far)),
    )
    assert [(r.variant, r.share) for r in results] == [
        *((variant.name, 1.0) for variant in VARIANTS),
        ("none", 0.1),
        ("mix-input", 0.1),
    ]
    assert len(begun) == 9
    assert heard == list(range(1, 10))
    by_name = {(r.variant, r.share): r for r in results}
    assert set(by_name["mix-both", 1.0].mixes) == {"input", "output"}
    assert set(by_name["mix-output", 1.0].mixes) == {"output"}
    assert by_name["average", 1.0].mixes == by_name["none", 1.0].mixes == {}
    assert (by_name["none", 0.1].examples, by_name["none", 1.0].examples) == (4, 40)
    assert not list((tmp_path / "running").iterdir())
    begun.clear()
    more = replace(plan, seeds=(1, 2), variants=(WITHOUT,), shares=())
    assert run(tmp_path, elmo, more, setup=small_setup(epochs=1), begun=begun.append)[0] == results[0]
    assert begun == [Cell(WITHOUT, 2)]


def test_a_killed_ablation_goes_on_after_the_last_whole_epoch(tmp_path: Path, elmo: Elmo) -> None:
    plan = Plan(variants=(WITHOUT, MIX_INPUT), seeds=(1,))
    whole = run(tmp_path / "whole", elmo, plan)

    class KilledError(Exception):
        pass

    epochs: list[Epoch] = []

    def die_in_the_third(epoch: Epoch) -> None:
        epochs.append(epoch)
        if len(epochs) == 3:
            raise KilledError

    with pytest.raises(KilledError):
        run(tmp_path / "killed", elmo, plan, listener=Listener(epoch=die_in_the_third))
    epochs.clear()
    again = run(tmp_path / "killed", elmo, plan, listener=Listener(epoch=epochs.append))
    assert [epoch.number for epoch in epochs] == [2]  # of the second cell; the first was kept
    assert [replace(r, seconds=0) for r in again] == [replace(r, seconds=0) for r in whole]


def test_processes_share_the_cells_of_a_folder(tmp_path: Path, elmo: Elmo) -> None:
    plan = Plan(variants=(WITHOUT, MIX_INPUT), seeds=(1, 2, 3))
    begun: list[list[Cell]] = [[], [], []]
    with ThreadPoolExecutor(3) as pool:  # threads hold locks against each other as processes do
        shared = [pool.submit(run, tmp_path, elmo, plan, begun=cells.append) for cells in begun]
        found = [future.result() for future in shared]
    assert found[0] == found[1] == found[2]
    assert [(r.variant, r.seed) for r in found[0]] == [(cell.variant.name, cell.seed) for cell in plan.cells()]
    assert sorted(cell.key for cells in begun for cell in cells) == sorted(cell.key for cell in plan.cells())
    assert not list((tmp_path / "running").iterdir())


def test_a_cell_of_a_process_that_ended_is_taken_over(
    tmp_path: Path, elmo: Elmo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmokit.tasks.ablate.run.LOOK_AGAIN", 0.01)
    plan = Plan(variants=(WITHOUT, MIX_INPUT), seeds=(1,))
    first, second = plan.cells()
    begun: list[Cell] = []
    waits: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        with taken(tmp_path / "running" / first.key):  # as another process that trains it
            future = pool.submit(run, tmp_path, elmo, plan, begun=begun.append, waits=waits.append)
            while not waits:
                assert not future.done()
                time.sleep(0.01)
            assert begun == [second]
        results = future.result()
    assert begun == [second, first]
    assert waits == [1]
    assert [result.variant for result in results] == ["none", "mix-input"]


def test_results_of_other_settings_are_refused(tmp_path: Path, elmo: Elmo) -> None:
    plan = Plan(variants=(WITHOUT,), seeds=(1,))
    run(tmp_path, elmo, plan)
    with pytest.raises(ConfigError, match=r"none-100pct-seed1\.json: was trained with other settings"):
        run(tmp_path, elmo, plan, setup=small_setup(hidden=5))
    begun: list[Cell] = []
    more = Plan(variants=(WITHOUT,), seeds=(2, 3))
    for _ in range(2):
        with pytest.raises(ConfigError, match="holds an ablation with other settings, data or encoder"):
            run(tmp_path, elmo, more, setup=small_setup(hidden=5), begun=begun.append)
    assert begun == []  # nothing is trained that would not fit
    (tmp_path / "kind").unlink()  # a folder of 0.1.0
    run(tmp_path, elmo, plan)
    assert run(tmp_path, elmo, more, begun=begun.append)
    assert len(begun) == 2
    cell = tmp_path / "cells/none-100pct-seed1.json"
    whole = cell.read_text(encoding="utf-8")
    for changed in ("{}", "{", "", whole.replace('"accuracy"', "3"), whole.replace('"seed": 1', '"seed": null')):
        assert changed != whole
        cell.write_text(changed, encoding="utf-8")
        with pytest.raises(InputError, match=r"seed1\.json: .*; remove it to train that cell again"):
            run(tmp_path, elmo, plan)
    with pytest.raises(ConfigError, match="fine_tune changes the encoder"):
        run(tmp_path, elmo, plan, setup=small_setup(fine_tune=True))


def test_what_can_be_planned() -> None:
    assert [v.name for v in pick_variants(["mix-both", "none"])] == ["none", "mix-both"]
    with pytest.raises(InputError, match="no variant 'mix'; available are none, layer-0"):
        pick_variants(["mix"])
    assert curve_variants(small_setup()) == (WITHOUT, MIX_INPUT)
    assert curve_variants(small_setup(elmo_layers="top", elmo_at="both"))[1] == Variant("as-set", "both", "top")
    with pytest.raises(InputError, match="elmo_at is 'none', but the curve compares"):
        curve_variants(small_setup(elmo_at="none"))
    with pytest.raises(ConfigError, match="30 is no share"):
        Plan(shares=(30,))
    with pytest.raises(ConfigError, match="nothing to train"):
        Plan(seeds=())
    cells = list(Plan(seeds=(3, 4), variants=(WITHOUT,), shares=(1.0, 0.5), curve=(WITHOUT,)).cells())
    assert [(c.seed, c.share) for c in cells] == [(3, 1.0), (3, 0.5), (4, 1.0), (4, 0.5)]


def test_small_shares_lie_within_greater_ones_and_are_gone_through_more_often() -> None:
    everything = [replace(example, label=str(k)) for k, example in enumerate(examples(100))]
    some, repeated = take_share(everything, 0.04, seed=1)
    greater, _ = take_share(everything, 0.1, seed=1)
    assert len(some) == 4
    assert list(repeated) == 5 * list(some)
    assert [e for e in greater if e in some] == some  # in their order
    assert take_share(everything, 0.04, seed=2)[0] != some
    assert take_share(everything, 1.0, seed=1) == (everything, everything)
    assert len(take_share(everything, 0.001, seed=1)[0]) == 1


def result(variant: str, seed: int, score: float, share: float = 1.0, **mixes: Any) -> CellResult:
    learned = {place: LearnedMix(tuple(mix["shares"]), mix["gamma"]) for place, mix in mixes.items()}
    return CellResult(variant, seed, share, round(200 * share), {"F1": score, "recall": 0.1}, learned, 9, 4, 80.0, "x")


RESULTS = [
    result("none", 1, 0.7),
    result("none", 2, 0.8),
    result(
        "mix-both", 1, 0.82, input={"shares": [0.5, 0.5], "gamma": 1.0}, output={"shares": [0.1, 0.9], "gamma": 2.0}
    ),
    result(
        "mix-both", 2, 0.88, input={"shares": [0.3, 0.7], "gamma": 2.0}, output={"shares": [0.3, 0.7], "gamma": 2.0}
    ),
    result("none", 1, 0.4, 0.03),
    result("mix-both", 1, 0.6, 0.03, input={"shares": [0.5, 0.5], "gamma": 1.0}),
]
ABOUT = {"task": "ner", "metric": "F1", "layers": ["token", "lstm 1"], "encoder": "en", "command": "elmokit ablate ner"}


def test_the_table_worked_by_hand() -> None:
    summaries = summarise(RESULTS)
    assert [s.score for s in summaries] == pytest.approx([0.75, 0.85, 0.4, 0.6])
    assert summaries[0].spread == pytest.approx(0.0707107)
    assert summaries[2].spread is None
    assert [s.reduction for s in summaries[1::2]] == pytest.approx([0.1 / 0.25, 0.2 / 0.6])
    assert summaries[0].reduction is None
    head, *rows = table_of(summaries, metric="F1")
    assert head[:4] == ["network", "dev F1", "±", "less error"]
    weights, gammas = "input .40 .60\noutput .20 .80", "1.50\n2.00"
    assert rows == [
        ["without ELMo", "75.00", "7.07", "", "", "", "2", "80 s"],
        ["mixes at both", "85.00", "4.24", "40.0%", weights, gammas, "2", "80 s"],
    ]
    assert curve_of(summaries, metric="F1") == [
        ["training data", "examples", "without ELMo, dev F1", "mixes at both, dev F1"],
        ["3%", "6", "40.00", "60.00"],
        ["100%", "200", "75.00 ± 7.07", "85.00 ± 4.24"],
    ]
    assert curve_of(summaries[:2], metric="F1") == []


def test_the_report_is_whole(tmp_path: Path) -> None:
    write_report(tmp_path, RESULTS, about=ABOUT)
    content = json.loads((tmp_path / "ablation.json").read_text())
    assert len(content["cells"]) == 6
    assert content["table"][1]["mixes"]["input"] == {"shares": pytest.approx([0.4, 0.6]), "gamma": 1.5}
    text = (tmp_path / "ablation.md").read_text(encoding="utf-8")
    assert text == markdown(summarise(RESULTS), ABOUT)
    assert "| mixes at both | 85.00 | 4.24 | 40.0% | input .40 .60<br>output .20 .80 | 1.50<br>2.00 |" in text
    assert "## Less training data" in text
    assert "command: elmokit ablate ner" in text


def test_pictures_of_weights_and_curve(tmp_path: Path) -> None:
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    weights, curve = draw_report(tmp_path, RESULTS, about=ABOUT, suffix=".json")
    drawn = json.dumps(json.loads(weights.read_text()))
    assert "mixes at both (input)" in drawn
    assert "gamma 1.50" in drawn
    drawn = json.dumps(json.loads(curve.read_text()))
    assert '"x": 3.0, "y": 60.0' in drawn
    assert "without ELMo" in drawn
    assert draw_report(tmp_path, RESULTS[:2], about=ABOUT, suffix=".json") == []
