"""What the views get, against the same computed another way."""

import asyncio
import base64
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmokit.analysis.drift import DriftConfig, measure_drift
from elmokit.analysis.word_senses import SensesConfig, group_vectors
from elmokit.encoders import Elmo
from elmokit.errors import ElmokitWarning, FormatError, InputError
from elmokit.explore import Explorer, prepare
from elmokit.explore.cloud import all_layers, gather, project
from elmokit.explore.facts import read_probes, read_run
from elmokit.explore.router import _lines
from elmokit.explore.steps import Progress, Steps, finish, packed
from elmokit.index import Index
from elmokit.lm import LanguageModel
from elmokit.server import Service

BANKS = ("He sat on the bank of the river.", "She paid it in at the bank.")


def unpacked(sent: dict[str, Any]) -> np.ndarray:
    kind = np.dtype(sent["type"]).newbyteorder("<")
    return np.frombuffer(base64.b64decode(sent["data"]), dtype=kind).reshape(sent["shape"])


def test_the_products_give_the_cosines_of_every_mix(explorer: Explorer, elmo: Elmo) -> None:
    found = finish(explorer.sentence(BANKS))
    products = unpacked(found["products"])
    weights, a, b = np.array([0.2, 0.5, 0.3]), 4, 9 + 6
    assert found["sentences"][0]["tokens"][a]["text"] == found["sentences"][1]["tokens"][6]["text"] == "bank"

    def mixed(x: int, y: int) -> float:
        return float(np.einsum("i,j,ij->", weights, weights, products[:, :, x, y]))

    own = [elmo.encode_tokens(text, layers="weights:0.2,0.5,0.3") for text in BANKS]
    first, second = own[0][4], own[1][6]
    cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    assert mixed(a, b) / np.sqrt(mixed(a, a) * mixed(b, b)) == pytest.approx(cosine, abs=1e-4)


def test_tokens_are_as_written_whatever_the_script(explorer: Explorer) -> None:
    text = "  <script>  النهر  schön, “no”"
    found = finish(explorer.sentence([text]))["sentences"][0]
    for token in found["tokens"]:
        assert found["text"][token["start"] : token["end"]] == token["text"]
    assert "النهر" in [token["text"] for token in found["tokens"]]
    with pytest.raises(InputError, match="no word"):
        finish(explorer.sentence(["  "]))
    with pytest.raises(InputError, match="expected 666 at most"):
        finish(explorer.sentence(["word " * 700]))


def test_nearest_words_of_the_corpus(explorer: Explorer) -> None:
    found = finish(explorer.nearest("whole", BANKS[0], 4))
    assert found["word"] == "bank"
    scores = [context["score"] for context in found["contexts"]]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 8
    with pytest.raises(InputError, match="no index 'none'"):
        finish(explorer.nearest("none", BANKS[0], 4))


def test_a_blank_and_a_sentence(explorer: Explorer) -> None:
    found = finish(explorer.blank("He sat on the ___ of the river."))
    lm = LanguageModel.from_pretrained()
    expected = lm.fill("He sat on the ___ of the river.", n=12)
    assert [w["word"] for w in found["both"]] == [w.word for w in expected.both or ()]
    assert found["blank"] == 4
    scored = finish(explorer.blank("He sat on the cheese of the river."))
    words = [token["text"] for token in scored["tokens"]]
    assert [w for w, marked in zip(words, scored["surprising"], strict=True) if marked] == ["cheese"]
    assert sum(scored["forward"]) > scored["totals"]["forward"]  # which has the sentence's end, too
    with pytest.raises(InputError, match="found 2 blanks"):
        finish(explorer.blank("a ___ b ___"))


def test_a_cloud_has_every_layer_in_one_projection(explorer: Explorer, elmo: Elmo, indexes: dict[str, Path]) -> None:
    found = finish(explorer.word(["whole"], "bank"))
    n = len(found["lines"])
    assert found["total"] == n == sum(Index.open(indexes["whole"]).words[w] for w in ("bank", "Bank"))
    assert [layer["name"] for layer in found["layers"]] == ["token", "lstm1", "lstm2"]
    token, _, top = (unpacked(layer["points"]) for layer in found["layers"])
    assert np.ptp(token[:, 0]) < 0.05 < np.ptp(top[:, 0])  # one word has one vector there
    assert found["sources"] == ["first.txt", "second.txt"]
    half, line = found["fields"]
    assert (half["name"], half["values"]) == ("half", ["first", "second"])
    assert unpacked(half["value"]).tolist() == unpacked(found["source"]).tolist()
    rows = np.sort(np.concatenate([Index.open(indexes["whole"]).rows_of(word) for word in found["spelled"]]))
    expected = [Index.open(indexes["whole"]).occurrence(int(row)).fields["line"] for row in rows]
    assert [line["values"][k] for k in unpacked(line["value"])] == expected
    assert {line[1] for line in found["lines"]} <= {"bank", "Bank"}
    cloud = finish(gather([Index.open(indexes["whole"])], "bank", elmo))
    finish(all_layers(cloud, elmo))
    assert np.abs(cloud.vectors("lstm2") - Index.open(indexes["whole"]).vectors(cloud.rows)).max() < 0.1
    one, other = (unpacked(packed(project(cloud)[name])) for name in ("lstm1", "lstm2"))
    assert np.abs(np.mean(one * other)) > 0  # the same axes: neither is noise to the other


def test_an_index_of_all_layers_needs_no_model(elmo: Elmo, indexes: dict[str, Path]) -> None:
    cloud = finish(gather([Index.open(indexes["layered"])], "river", elmo))
    assert list(cloud.layers) == ["lstm2", "lstm1", "token"]
    held = cloud.vectors("lstm1")
    cloud.layers = {"lstm2": cloud.layers["lstm2"]}
    finish(all_layers(cloud, elmo))
    assert np.abs(cloud.vectors("lstm1") - held).max() < 0.1


def test_groups_and_what_tells_them(explorer: Explorer, indexes: dict[str, Path]) -> None:
    made = finish(explorer.groups(["whole"], "bank", clusters=2))
    labels = unpacked(made["labels"])
    assert [group["size"] for group in made["groups"]] == np.bincount(labels).tolist()
    lines = finish(explorer.word(["whole"], "bank"))["lines"]
    assert len(labels) == len(lines)
    index = Index.open(indexes["whole"])
    rows = np.sort(np.concatenate([index.rows_of(word) for word in index.spelled("bank")]))
    expected = group_vectors(index.vectors(rows), (), SensesConfig(clusters=2))
    assert [set(np.flatnonzero(labels == k)) for k in range(2)] == [set(group.uses) for group in expected.groups]
    for number, group in enumerate(made["groups"]):
        assert group["around"]
        assert (labels[group["examples"]] == number).all()
    said = finish(explorer.substitutes(["whole"], "bank", [group["examples"] for group in made["groups"]]))["groups"]
    assert all(words and all(w["word"].lower() != "bank" for w in words) for words in said)
    scores = unpacked(finish(explorer.similar(["whole"], "bank", 3))["scores"])
    assert scores[3] == pytest.approx(1, abs=1e-4)
    assert scores.argmax() == 3
    with pytest.raises(InputError, match="did you mean"):
        finish(explorer.word(["whole"], "bannk"))
    with pytest.raises(InputError, match="is not in"):
        finish(explorer.word(["empty"], "bank"))


def test_the_rest_of_a_large_cloud_joins_the_nearest_group(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = unpacked(finish(explorer.groups(["whole"], "the", clusters=2))["labels"])
    monkeypatch.setattr("elmokit.explore.groups.MOST_GROUPED", len(whole) // 2)
    some = unpacked(finish(explorer.groups(["whole"], "the", clusters=2))["labels"])
    same = float((whole == some).mean())
    assert max(same, 1 - same) > 0.8
    assert len(some) == len(whole) > 100


def test_change_is_that_of_drift(explorer: Explorer, indexes: dict[str, Path]) -> None:
    found = finish(explorer.change("first", "second", by="apd", min_count=4))
    opened = [Index.open(indexes[name]) for name in ("first", "second")]
    word = found["words"][0]["word"]
    (expected,) = measure_drift(*opened, words=[word], config=DriftConfig(min_count=4))
    assert found["words"][0]["apd"] == pytest.approx(expected.apd, abs=1e-6)
    assert finish(explorer.change("first", "second", min_count=4))["by"] == DriftConfig().by == "net"
    values = [one["apd"] for one in found["words"]]
    assert values == sorted(values, reverse=True)
    assert not {"the", "of"} & {one["word"] for one in found["words"]}
    both = finish(explorer.word(["first", "second"], "bank"))
    assert set(unpacked(both["side"]).tolist()) == {0, 1}
    assert unpacked(both["apart"]).min() >= -1e-5
    assert both["fields"] == []
    with pytest.raises(InputError, match="no word occurs"):
        finish(explorer.change("first", "second", min_count=10_000))
    with pytest.raises(InputError, match="different models or layers"):
        finish(explorer.word(["first", "layered"], "bank"))


def test_layers_of_the_model(explorer: Explorer) -> None:
    layers = finish(explorer.layers("whole"))["layers"]
    same = [layer["same"] for layer in layers]
    assert same[0] == pytest.approx(1, abs=0.02)
    assert same[0] > same[1] > layers[1]["others"]
    about = finish(explorer.about())
    assert about["model"]["layers"] == ["token", "lstm1", "lstm2"]
    assert about["model"]["parts"]["parameters"]["total"] > 1e6
    assert {index["name"]: index["fits"] for index in about["indexes"]}["whole"]
    json.dumps(about)
    with pytest.raises(InputError, match="holds no words"):
        finish(explorer.layers("empty"))


def test_an_index_of_another_model(elmo: Elmo, indexes: dict[str, Path], tmp_path: Path) -> None:
    """Its own layer is shown. No layer of the model that is here stands for one of its model."""
    shutil.copytree(indexes["first"], tmp_path / "old")
    stored = json.loads((tmp_path / "old" / "index.json").read_text())
    (tmp_path / "old" / "index.json").write_text(json.dumps(stored | {"model": "0" * 32}))
    other = Explorer(elmo, indexes={"old": Index.open(tmp_path / "old")})
    own = [layer["name"] for layer in finish(other.word(["old"], "bank"))["layers"]]
    assert own == ["layers top"]
    assert finish(other.groups(["old"], "bank", layer="layers top"))["groups"]
    for ask in (
        lambda: other.word(["old"], "bank", layers="all"),
        lambda: other.groups(["old"], "bank", layer="lstm1"),
        lambda: other.similar(["old"], "bank", 0, layer="lstm1"),
    ):
        with pytest.raises(InputError, match="made with another model"):
            finish(ask())
    with pytest.warns(ElmokitWarning, match=r"old was made with another model .* than .*say with -m"):
        _, service, bound, _ = prepare([tmp_path / "old"], device="cpu")
    service.close()
    bound.close()


def test_curves_of_a_run_that_is_still_being_written(tmp_path: Path) -> None:
    lines = [{"step": k, "time": 1.0, "loss": 9.0 - k / 1000, "epoch": 0.1} for k in range(2000)]
    lines.append({"step": 1999, "time": 2.0, "perplexity": 55.5})
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"step": 2000, "lo', encoding="utf-8")
    run = read_run(tmp_path)
    assert set(run["curves"]) == {"loss", "perplexity"}
    assert len(run["curves"]["loss"]) == 800
    assert run["curves"]["loss"][-1] == [1999, pytest.approx(7.001)]
    assert read_run(tmp_path / "nothing")["curves"] == {}
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "training.json").write_text('[{"number": 1,')
    with pytest.raises(FormatError, match=r"training.json: not what  elmokit train  wrote"):
        read_run(tmp_path / "task")


def test_runs_of_one_name_are_told_apart(elmo: Elmo, tmp_path: Path) -> None:
    explorer = Explorer(elmo, runs=[tmp_path / "first" / "run", tmp_path / "second" / "run"])
    assert finish(explorer.about())["runs"] == ["first/run", "second/run"]


def test_probes_of_a_file(tmp_path: Path) -> None:
    record = {"encoder": "en", "label": "upos", "view": "0 token", "accuracy": 0.9, "control": 0.7, "sentences": 10}
    (tmp_path / "probe.json").write_text(json.dumps([record]), encoding="utf-8")
    assert read_probes([tmp_path / "probe.json"])[0]["accuracy"] == 0.9
    (tmp_path / "other.json").write_text('{"a": 1}', encoding="utf-8")
    with pytest.raises(FormatError, match=r"elmokit probe -o"):
        read_probes([tmp_path / "other.json"])


def test_work_comes_in_steps(explorer: Explorer) -> None:
    steps = explorer.change("first", "second", min_count=4)
    first = next(steps)
    assert isinstance(first, Progress)
    assert 0 == first.done < first.total
    steps.close()  # the user has moved on


def test_the_word_to_begin_with_tells_something(explorer: Explorer, indexes: dict[str, Path]) -> None:
    found = finish(explorer.words("whole"))
    counts = Index.open(indexes["whole"]).words
    assert found["words"][0] == {"word": "the", "count": counts["the"]}
    assert not {"the", "with", "their"} & set(found["telling"])
    first = found["first"]
    assert len(first) >= 5
    assert counts[first] == max(counts[word] for word in found["telling"] if len(word) >= 5)
    assert finish(explorer.words("whole", "ban"))["first"] == "banks"
    assert finish(explorer.words("empty")) == {"words": [], "telling": [], "first": ""}


def test_a_page_that_goes_away_ends_its_work(elmo: Elmo) -> None:
    done: list[int | str] = []

    def steps() -> Steps[int]:
        try:
            for k in range(1000):
                done.append(k)
                yield Progress(k, 1000, "counting", model=bool(k % 2))
        finally:
            done.append("closed")
        return 1

    async def visit(service: Service) -> list[bytes]:
        lines = _lines(service, steps(), None)
        told = [await anext(lines) for _ in range(3)]
        await lines.aclose()  # as the server does when the connection is gone
        return told

    service = Service({"en": elmo})
    service.start()
    try:
        assert [json.loads(line) for line in asyncio.run(visit(service))][2] == {"progress": [2, 1000, "counting"]}
    finally:
        service.close()
    assert done == [0, 1, 2, "closed"]


def test_work_that_fails_is_told_to_the_page(elmo: Elmo) -> None:
    def steps() -> Steps[int]:
        yield Progress(0, 1)
        raise RuntimeError("a fault")

    async def visit(service: Service) -> list[bytes]:
        lines = _lines(service, steps(), None)
        told = [await anext(lines) for _ in range(2)]
        with pytest.raises(RuntimeError, match="a fault"):  # for the log
            await anext(lines)
        return told

    service = Service({"en": elmo})
    service.start()
    try:
        assert json.loads(asyncio.run(visit(service))[-1]) == {"error": "the server failed; its log says why"}
    finally:
        service.close()
