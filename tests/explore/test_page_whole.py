"""The page as a whole: addresses, keys, text of any kind, no index, an empty one, a server that goes away."""

from typing import Any

from visits import Server, Visit, lines_of, rows_of, state_of

from elmokit.server.sources import ready_tasks

VIEWS = ("sentence", "blank", "word", "change", "tasks", "model")


def test_views_by_keyboard_and_address(visit: Visit) -> None:
    page = visit.go("?view=model")
    page.keyboard.press("Alt+2")
    visit.settled()
    assert state_of(page)["view"] == "blank"
    page.go_back()
    visit.settled()
    assert page.locator("nav a[aria-current]").inner_text() == "Model"
    page.get_by_role("link", name="Change").click()
    visit.settled()
    assert page.title() == "Change · elmokit explorer"
    visit.go("?view=nothing&layer=99")
    assert page.locator("h1").inner_text() == "Sentence"


def test_text_is_never_taken_for_html(visit: Visit) -> None:
    evil = "<script>alert(1)</script> <img src=x onerror=alert(2)> bank"
    page = visit.go()
    page.on("dialog", lambda dialog: visit.wrong.append(dialog.message))
    page.get_by_role("textbox", name="First sentence").fill(evil)
    page.locator(".words button", has_text="script").first.wait_for()
    visit.settled()
    assert page.locator(".words").first.inner_text() == evil
    assert page.locator("main img, main script").count() == 0
    visit.go("?view=blank&text=%3Cscript%3Ealert(1)%3C/script%3E%20___")
    visit.go("?view=word&word=%3Cscript%3E")
    assert page.locator(".wrong").inner_text().startswith("'<script>' is not in")
    visit.go("?view=tasks&text=%3Cb%3EAnn%3C/b%3E")
    assert "<b>" in page.locator(".answer").first.inner_text()


def test_characters_that_javascript_counts_as_two(visit: Visit) -> None:
    text = "😀 Ann 👩‍👩‍👧 sees New York 🇩🇪 now."
    page = visit.go(f"?a={text}")
    assert page.locator(".words").first.inner_text() == text
    page = visit.go(f"?view=blank&text={text}")
    assert page.locator(".words").first.inner_text() == text
    page.locator(".words button", has_text="sees").click()
    visit.settled()
    assert state_of(page)["text"] == text.replace("sees", "___")
    page = visit.go(f"?view=tasks&text={text}")
    found = [row[0] for row in rows_of(visit.saved("What it finds", "CSV"))[1:]]
    page.locator(".answer mark sub").evaluate_all("all => all.forEach(one => one.remove())")
    assert page.locator(".answer mark").all_inner_texts() == found
    assert found


def test_right_to_left(visit: Visit) -> None:
    page = visit.go("?a=جلس الرجل على ضفة النهر&b=النهر طويل")
    assert page.locator(".words").first.evaluate("one => getComputedStyle(one).direction") == "rtl"
    assert page.get_by_role("region", name="“النهر” in both sentences").is_visible()


def test_an_empty_index(visit: Visit) -> None:
    page = visit.go("?view=word&index=empty")
    assert page.get_by_text("It holds no words yet").is_visible()
    page.get_by_role("combobox", name="Index", exact=True).select_option("whole")
    visit.settled()
    page.get_by_role("button", name="cell", exact=True).click()
    visit.settled()
    assert lines_of(page) > 5


def test_no_index_and_a_server_that_goes_away(browser: Any) -> None:
    server = Server()
    visit = Visit(browser, server.address)
    try:
        page = visit.go()
        assert page.get_by_text("With an index of a text").is_visible()
        tasks = "Layer weights" if ready_tasks() else "No task model"  # those that come with the package are offered
        for view, told in (("word", "No index yet"), ("change", "Two indexes are needed"), ("tasks", tasks)):
            visit.go(f"?view={view}")
            assert page.get_by_text(told).first.is_visible()
        visit.go("?view=blank")
        assert visit.wrong == []
        port = server.port
        assert server.stop() == 0
        page.get_by_role("button", name="The prime ___ resigned on Monday.").click()
        page.get_by_text("The server does not answer").wait_for()
        server = Server(port=port)
        page.get_by_text("The server does not answer").wait_for(state="hidden")
        page.get_by_role("button", name="minister").first.wait_for()  # it has gone on where it was
    finally:
        visit.context.close()
        server.stop()
