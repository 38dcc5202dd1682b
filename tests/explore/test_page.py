"""The real page in a real browser, with real indexes: every view, every control, both directions of a selection."""

import io
import json
import struct
import xml.etree.ElementTree as ET
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from visits import Visit, drag, lines_of, rows_of, state_of, until

VIEWS = ("sentence", "blank", "word", "change", "tasks", "model")


def test_two_senses_of_a_word_come_first(visit: Visit) -> None:
    page = visit.go()
    chart = page.get_by_role("region", name="“bank” in both sentences")
    numbers = [float(text) for text in chart.locator("svg text.faint").all_text_contents()]
    assert numbers[0] == 1.0 > numbers[1] > numbers[2]
    assert page.locator(".words").all_inner_texts() == [
        "He sat on the bank of the river.",
        "She paid it in at the bank.",
    ]
    page.get_by_role("button", name="play", exact=True).click()
    visit.settled()
    assert page.get_by_role("region", name="“play” in both sentences").is_visible()
    assert state_of(page)["a"] == "They play football in the park."
    page.go_back()
    visit.settled()
    assert page.get_by_role("region", name="“bank” in both sentences").is_visible()
    page.get_by_role("textbox", name="First sentence").fill("He sat on the bench of the river.")
    page.locator(".words button", has_text="bench").wait_for()
    assert page.get_by_role("region", name="“the” in both sentences").is_visible()


def test_layers_mixes_and_hovering(visit: Visit) -> None:
    page = visit.go("?focus=4")
    near = page.get_by_role("region", name="Nearest to “bank” in the other sentence")
    top = near.inner_text()
    page.get_by_role("slider", name="Layer").focus()
    page.keyboard.press("ArrowLeft")
    assert state_of(page)["layer"] == "1"
    assert near.inner_text() != top
    page.get_by_role("button", name="mix", exact=True).click()
    page.get_by_label("Weight of token").fill("1")
    for name in ("lstm1", "lstm2"):
        page.get_by_label(f"Weight of {name}").fill("0")
    assert state_of(page)["mix"] == "1.00,0.00,0.00"
    assert "1.00" in str(near.locator("svg text.faint").first.text_content())  # the token layer knows no context
    before = near.get_by_text("Length of its vector").inner_text()
    page.get_by_role("slider", name="gamma").fill("2")
    assert near.get_by_text("Length of its vector").inner_text() != before
    first = page.locator(".words button", has_text="river")
    first.hover()
    assert "cosine 1.00" in str(first.get_attribute("title"))
    first.click()
    visit.settled()
    assert state_of(page)["focus"] == "7"
    assert page.get_by_role("region", name="Nearest to “river” in whole").is_visible()
    page.reload()
    visit.settled()
    assert page.get_by_role("region", name="Nearest to “river” in whole").is_visible()
    assert page.get_by_role("slider", name="gamma").input_value() == "2"
    page.locator("image.pixels").hover()
    page.get_by_text("cosine").first.wait_for()


def test_pictures_and_tables_are_saved(visit: Visit) -> None:
    visit.go()
    card = "Every token against every token"
    table = rows_of(visit.saved(card, "CSV"))
    assert table[0] == ["", "She", "paid", "it", "in", "at", "the", "bank", "."]
    assert 0.5 < float(table[5][7]) < 0.9
    picture = ET.fromstring(visit.saved(card, "SVG"))
    assert picture.tag.endswith("svg")
    assert any(node.text == "river" for node in picture.iter())
    assert not any("class" in node.attrib or "var(" in str(node.attrib) for node in picture.iter())
    png = visit.saved(card, "PNG")
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    assert min(width, height) > 300


def test_a_blank_is_filled_and_emptied(visit: Visit) -> None:
    page = visit.go("?view=blank")
    both = page.get_by_role("region", name="From both sides")
    assert rows_of(visit.saved("From both sides", "CSV"))[1][0] == "bank"
    both.get_by_role("button", name="edge").focus()
    page.keyboard.press("Enter")
    visit.settled()
    assert state_of(page)["text"] == "He sat on the edge of the river."
    assert len(rows_of(visit.saved("Word by word", "CSV"))) == 10
    page.get_by_role("button", name="He drank a cup of hot algebra.").click()
    visit.settled()
    assert "algebra" in page.locator(".words .odd").all_inner_texts()
    page.locator(".words button", has_text="cup").click()
    visit.settled()
    assert page.get_by_role("textbox", name="Sentence", exact=True).input_value() == "He drank a ___ of hot algebra."
    page.get_by_label("Candidates").fill("3")
    page.keyboard.press("Enter")
    visit.settled()
    assert len(rows_of(visit.saved("From the left", "CSV"))) == 4
    page.get_by_role("textbox", name="Sentence", exact=True).fill("no blank")
    page.get_by_role("textbox", name="Sentence", exact=True).press("Home")
    page.get_by_role("button", name="Insert ___").click()
    visit.settled()
    assert state_of(page)["text"] == "___ no blank"


def test_points_and_lines_follow_each_other(visit: Visit) -> None:
    page = visit.go("?view=word")
    first = state_of(page)["word"]  # the view opens with a word
    assert page.get_by_role("combobox", name="Word", exact=True).input_value() == first
    assert page.get_by_role("table", name="Concordance").get_by_text(first).first.is_visible()
    page.get_by_role("combobox", name="Word", exact=True).fill("bank")
    page.get_by_role("button", name="Show", exact=True).click()
    visit.settled()
    total = lines_of(page)
    assert total > 10
    drag(page, [(0.02, 0.02), (0.5, 0.02), (0.5, 0.95), (0.02, 0.95), (0.02, 0.05)])
    left = until(page, lambda n: 0 < n < total)
    assert "those selected" in page.locator(".note", has_text="selected").first.inner_text()
    exported = rows_of(visit.saved("Concordance", "CSV"))
    assert len(exported) == left + 1
    assert exported[1][-2] == "bank"
    picked = state_of(page)["pick"]
    assert len(picked.split(",")) == left
    page.reload()
    visit.settled()
    until(page, lambda n: n == left)
    page.get_by_role("button", name="Clear selection").click()
    until(page, lambda n: n == total)
    page.get_by_role("button", name="box", exact=True).click()
    drag(page, [(0.5, 0.01), (0.99, 0.99)])
    until(page, lambda n: 0 < n < total)
    page.get_by_role("button", name="Clear selection").click()
    page.locator(".kwic tbody tr[data-number='3']").click()  # and the other way round
    assert state_of(page)["pick"] == "3"
    until(page, lambda n: n == 1)
    tip = page.locator(".cloud .tip")
    assert "bank" in tip.inner_text()
    page.locator(".cloud canvas.over").focus()
    page.keyboard.press("Escape")
    until(page, lambda n: n == total)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    until(page, lambda n: n == 1)


def test_sorting_grouping_and_colours(visit: Visit) -> None:
    page = visit.go("?view=word&word=bank&sort=left")
    exported = rows_of(visit.saved("Concordance", "CSV"))
    before = [row[exported[0].index("before")].split()[-1:] for row in exported[1:]]
    assert before == sorted(before, key=lambda words: [w.lower() for w in words])
    page.get_by_role("combobox", name="Sort by", exact=True).select_option("right")
    exported = rows_of(visit.saved("Concordance", "CSV"))
    after = [row[-1].strip() for row in exported[1:]]
    assert after != [row[-1].strip() for row in sorted(exported[1:])] or after
    page.get_by_role("combobox", name="Groups", exact=True).select_option("3")
    visit.settled()
    groups = page.get_by_role("region", name="Groups")
    groups.get_by_text("in its place").first.wait_for()
    assert groups.get_by_text("Group 3").is_visible()
    page.get_by_role("combobox", name="Sort by", exact=True).select_option("group")
    numbers = [row[0] for row in rows_of(visit.saved("Concordance", "CSV"))[1:]]
    assert numbers == sorted(numbers)
    assert set(numbers) == {"1", "2", "3"}
    page.get_by_role("combobox", name="Sort by", exact=True).select_option("score")
    page.locator(".kwic tbody tr[data-number='2']").click()
    visit.settled()
    exported = rows_of(visit.saved("Concordance", "CSV"))
    scores = [float(row[exported[0].index("like")]) for row in exported[1:]]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(1, abs=0.01)
    for by in ("source", "spelling", "before", "after", "group"):
        page.get_by_role("combobox", name="Colour", exact=True).select_option(by)
        assert page.locator(".legend button").first.is_visible()
    page.get_by_role("button", name="group 1", exact=True).click()
    until(page, lambda n: 0 < n < len(numbers))
    for name in ("token", "lstm1", "lstm2"):
        page.get_by_role("button", name=name, exact=True).click()
        visit.settled()
        assert state_of(page).get("layer") in (name, None)
    picture = ET.fromstring(visit.saved("Occurrences", "SVG"))
    assert sum(node.tag.endswith(("circle", "path")) for node in picture.iter()) >= len(numbers)
    assert len(rows_of(visit.saved("Occurrences", "CSV"))) == len(numbers) + 1
    assert visit.saved("Occurrences", "PNG")[:4] == b"\x89PNG"
    assert len(rows_of(visit.saved("Groups", "CSV"))) == 4


def test_a_selection_ends_with_its_index(visit: Visit) -> None:
    page = visit.go("?view=word&index=first&word=play&pick=3")
    until(page, lambda n: n == 1)
    page.get_by_role("combobox", name="Index", exact=True).select_option("second")  # which has the word as often
    visit.settled()
    until(page, lambda n: n == 14)


def test_fields_of_the_text(visit: Visit) -> None:
    page = visit.go("?view=word&word=bank&colour=field+half&sort=field+line")
    assert page.locator(".cloud + .row .legend button").all_inner_texts() == ["first", "second"]
    exported = rows_of(visit.saved("Concordance", "CSV"))
    half, line = (exported[0].index(name) for name in ("half", "line"))
    numbers = [int(row[line]) for row in exported[1:]]
    assert numbers == sorted(numbers)
    assert {row[half] for row in exported[1:]} == {"first", "second"}
    page.locator(".legend").get_by_role("button", name="first", exact=True).click()
    until(page, lambda n: n == sum(row[half] == "first" for row in exported[1:]))
    page.get_by_role("button", name="Clear selection").click()
    page.get_by_role("combobox", name="Colour", exact=True).select_option("field line")
    ranges = page.locator(".cloud + .row .legend button").all_inner_texts()
    assert 2 <= len(ranges) <= 6
    ends = [[int(number) for number in one.split(" to ")] for one in ranges]
    assert (ends[0][0], ends[-1][-1]) == (numbers[0], numbers[-1])
    assert ends == sorted(ends)
    points = rows_of(visit.saved("Occurrences", "CSV"))
    assert points[0] == ["before", "word", "after", "source", "half", "line", "group", "x", "y"]
    assert sorted(int(row[5]) for row in points[1:]) == numbers


def test_change_between_two_texts(visit: Visit) -> None:
    page = visit.go("?view=change&first=first&second=second&least=4")
    table = rows_of(visit.saved("Words by change", "CSV"))
    assert table[0] == ["word", "in first", "in second", "net", "prt", "apd", "jsd", "p"]
    values = [float(row[3]) for row in table[1:]]
    assert values == sorted(values, reverse=True)
    page.get_by_role("combobox", name="Rank by", exact=True).select_option("apd")
    visit.settled()
    values = [float(row[5]) for row in rows_of(visit.saved("Words by change", "CSV"))[1:]]
    assert values == sorted(values, reverse=True)
    page.get_by_role("button", name="word", exact=True).click()
    words = [row[0] for row in rows_of(visit.saved("Words by change", "CSV"))[1:]]
    assert words == sorted(words, key=str.lower)
    page.get_by_role("button", name=words[0], exact=True).click()
    visit.settled()
    assert state_of(page)["word"] == words[0]
    exported = rows_of(visit.saved("Concordance", "CSV"))
    apart = [float(row[exported[0].index("apart")]) for row in exported[1:]]
    assert apart == sorted(apart, reverse=True)
    assert {row[exported[0].index("source")] for row in exported[1:]} == {"first", "second"}
    page.get_by_role("button", name="first", exact=True).click()  # in the legend
    exported = rows_of(visit.saved("Concordance", "CSV"))
    assert {row[exported[0].index("source")] for row in exported[1:]} == {"first"}
    page.get_by_label("Only words that contain").fill(words[-1])
    assert [row[0] for row in rows_of(visit.saved("Words by change", "CSV"))[1:]] == [
        word for word in words if words[-1].lower() in word.lower()
    ]
    page.get_by_label("At least so often").fill("5000")
    page.keyboard.press("Enter")
    page.get_by_text("no word occurs 5000 times in both").wait_for()
    page.get_by_role("combobox", name="Second text", exact=True).select_option("first")
    page.get_by_text("The two texts are the same").wait_for()


def test_work_shows_a_sign_and_ends_when_the_user_moves_on(visit: Visit) -> None:
    page = visit.go("?view=model")
    held: list[Any] = []
    page.route("**/explore/api/change", lambda route: held.append(route))  # the answer does not come
    page.goto(visit.address + "?view=change&first=first&second=second&least=4")
    page.locator("#status progress").wait_for()
    assert page.locator("main").get_attribute("aria-busy") == "true"
    with page.expect_event("requestfailed", lambda request: "api/change" in request.url):
        page.get_by_role("button", name="Stop", exact=True).click()
    page.locator("#status progress").wait_for(state="detached")
    page.get_by_label("At least so often").fill("5")
    page.keyboard.press("Enter")
    page.locator("#status progress").wait_for()
    with page.expect_event("requestfailed", lambda request: "api/change" in request.url):
        page.get_by_role("link", name="Blank").click()
    assert len(held) == 2
    page.unroute_all(behavior="ignoreErrors")
    visit.settled()
    assert page.locator("#status progress").count() == 0


def test_every_kind_of_task(visit: Visit) -> None:
    page = visit.go("?view=tasks")
    page.get_by_role("textbox", name="Text", exact=True).fill("Ann sees New York.")
    page.locator(".answer", has_text="New York").wait_for()
    visit.settled()
    spans = rows_of(visit.saved("What it finds", "CSV"))
    assert ["Ann", "PER"] in [row[:2] for row in spans]
    mixes = rows_of(visit.saved("Layer weights that the task learnt", "CSV"))
    assert mixes[0] == ["model", "token", "lstm1", "lstm2", "gamma"]
    assert sum(map(float, mixes[1][1:4])) == pytest.approx(1, abs=1e-3)
    others = {"classify": "labels", "entail": "labels", "qa": "answer", "roles": "roles", "coref": "clusters"}
    for name, card in others.items():
        page.get_by_role("combobox", name="Model", exact=True).select_option(name)
        visit.settled()
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Save {card} as CSV").first.click()
        assert len(rows_of(Path(download.value.path()).read_bytes())) >= 1
    page.get_by_role("combobox", name="Model", exact=True).select_option("qa")
    visit.settled()
    page.get_by_role("textbox", name="Question").fill("Where did it fall?")
    page.get_by_role("region", name="Where did it fall?").locator("mark").wait_for()
    visit.settled()


def test_the_model_and_a_run_that_goes_on(visit: Visit, given: dict[str, Any]) -> None:
    page = visit.go("?view=model")
    assert page.get_by_text("3 layers (token, lstm1, lstm2) of 512").is_visible()
    assert page.get_by_role("region", name="Probe: upos").is_visible()
    page.get_by_text("sentences of whole").wait_for()
    assert page.get_by_role("img", name="loss by step").is_visible()
    assert not page.get_by_role("img", name="perplexity by step").is_visible()
    with (given["run"] / "log.jsonl").open("a", encoding="utf-8") as log:
        for step in (20, 30):
            log.write(json.dumps({"step": step, "time": 1.0, "perplexity": 300 - step}) + "\n")
    page.get_by_role("img", name="perplexity by step").wait_for()


@pytest.mark.parametrize("view", VIEWS)
def test_every_control_can_be_used(visit: Visit, view: str) -> None:
    given = {"word": "&word=bank", "change": "&first=first&second=second&least=4&word=bank"}.get(view, "")
    page = visit.go(f"?view={view}{given}")
    for number in range(page.locator("main select").count()):
        control = page.locator("main select").nth(number)
        if control.is_visible():
            for value in control.evaluate("select => [...select.options].map(one => one.value).reverse()"):
                control.select_option(value)
        visit.settled()
    visit.go(f"?view={view}{given}")
    for number in range(page.locator("main input[type=range]").count()):
        control = page.locator("main input[type=range]").nth(number)
        if control.is_visible() and control.is_enabled():
            for key in ("Home", "End", "ArrowLeft"):
                control.press(key)
    visit.settled()
    visit.go(f"?view={view}{given}")
    for name in page.locator("main button:visible").evaluate_all("all => all.map(one => one.textContent)"):
        found = page.locator("main button:visible", has_text=name).first
        if name not in ("SVG", "PNG", "CSV") and found.count() and found.is_enabled():
            found.click()
    visit.settled()
    assert page.locator("main .wrong").all_inner_texts() == []
    page.get_by_label("Light or dark").click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    visit.settled()


@pytest.mark.parametrize("view", VIEWS)
def test_the_code_that_is_shown_runs(visit: Visit, view: str) -> None:
    given = {"word": "&word=bank", "change": "&first=first&second=second&least=4&word=bank"}.get(view, "")
    page = visit.go(f"?view={view}{given}")
    page.get_by_role("button", name="Show me the code").click()
    python = page.get_by_label("Python", exact=True).inner_text()
    command = page.get_by_label("Command", exact=True).inner_text()
    page.keyboard.press("Escape")
    said = io.StringIO()
    with redirect_stdout(said):
        exec(compile(python, view, "exec"), {})
    assert said.getvalue().strip()
    assert command.startswith("elmokit ")
    assert view in ("change", "tasks", "model") or command.endswith(" -m en")  # an index and a task know their models
