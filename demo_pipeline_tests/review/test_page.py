"""Tests of the review page in Chromium: keyboard, reloads, and a server that is killed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from demo_pipeline.annotations.annotate import annotate_all
from demo_pipeline.annotations.annotation_sources import import_lines
from demo_pipeline.annotations.annotation_stage import ANNOTATIONS_STAGE
from demo_pipeline.annotations.annotation_store import open_judged
from demo_pipeline.privacy.redaction_stage import REDACTIONS_STAGE, is_shown_redacted
from demo_pipeline.review.decisions import Judgement, judge
from demo_pipeline.review.review_store import Reviews, subject_of
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import PrivacySettings
from demo_pipeline_tests.browser import opened_browser
from demo_pipeline_tests.building import build_stage
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectory
from demo_pipeline_tests.review.serving import Served, kill, served, start_command
from demo_pipeline_tests.sample_workspace import copy_of, open_workspace

pytestmark = pytest.mark.browser
PATIENCE = 20_000.0  # ms; longest wait for the page, on a busy machine


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened_browser() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Opens a browser page. An error in the page's script fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    yield page
    context.close()
    assert faults == []


@pytest.fixture
def root(made_root: Path, tmp_path: Path) -> Path:
    return copy_of(made_root, tmp_path / "root")


def held(workspace: Workspace, name: str = "first") -> Judgement:
    reviews = Reviews(workspace.store)
    reviews.refresh()
    version = workspace.store.current(f"trajectories/{name}")
    assert version is not None
    return judge(reviews.about(name), subject_of(version, name))


def wait_for_step(page: Page, step: str) -> None:
    expect(page.locator(f'#canvas[data-shown="{step}"]')).to_be_attached(timeout=PATIENCE)


def show(page: Page, running: Served, step: str) -> None:
    page.goto(f"{running.url}#{step}")
    wait_for_step(page, step)


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def wait_until_saved(page: Page) -> None:
    expect(page.locator("#saving")).to_have_text("All saved", timeout=PATIENCE)


def test_a_demonstration_is_judged_and_corrected_by_keyboard(root, page):
    workspace = open_workspace(root)
    with served(workspace) as running:
        page.goto(f"{running.url}#first")
        wait_for_step(page, "first/0")
        expect(page.locator("#queue li")).to_have_count(2)
        press(page, "ArrowRight")
        wait_for_step(page, "first/1")
        press(page, "j", "k", "k")
        wait_for_step(page, "first/0")
        press(page, "End", "b", "Home", "j")
        wait_until_saved(page)
        press(page, "[")
        page.keyboard.press("i")
        page.keyboard.press("Control+A")
        page.keyboard.type("Tick the box:")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("  write the name.")
        press(page, "Enter")
        wait_until_saved(page)
        press(page, "t")  # the next click selects the element at its position
        boxes = page.evaluate("() => document.querySelector('#canvas').getBoundingClientRect()")
        node = page.evaluate("() => state.nodes.find((one) => one.name === 'Agree').bounds")
        x = boxes["x"] + (node["x"] + node["width"] / 2) * boxes["width"] / 1920
        y = boxes["y"] + (node["y"] + node["height"] / 2) * boxes["height"] / 1080
        page.mouse.move(x, y)
        page.mouse.click(x, y)
        wait_until_saved(page)
        expect(page.locator("#target")).to_contain_text("Agree", timeout=PATIENCE)
        press(page, "a")
        wait_until_saved(page)
        corrections = held(workspace).corrections
        last = len(page.locator("#steps li").all()) - 1
        assert corrections.instruction == "Tick the box:\n  write the name."
        assert corrections.bad_steps == [last]
        assert corrections.trim is not None
        assert (corrections.trim.first, corrections.trim.last) == (1, last)
        [action] = corrections.actions
        assert action.step_index == 1
        assert action.target_element is not None
        assert action.target_element.name == "Agree"
        assert held(workspace).status == "approved"
        page.reload()
        wait_for_step(page, "first/1")
        assert page.locator("#instruction").inner_text() == corrections.instruction
        expect(page.locator("#decisions li")).to_have_count(5)
        press(page, "u")
        expect(page.locator("#decisions li.undone")).to_have_count(1, timeout=PATIENCE)
        press(page, "u", "U")
        wait_until_saved(page)
        assert held(workspace).status == "open"


def test_parameters_notes_and_rejection_with_a_reason(root, page):
    workspace = open_workspace(root)
    with served(workspace) as running:
        show(page, running, "first/0")
        press(page, "e", "Control+A")
        page.keyboard.type("400")
        press(page, "Enter")
        wait_until_saved(page)
        press(page, "c")
        page.keyboard.type("look here")
        press(page, "Enter")
        press(page, "r", "2")
        wait_until_saved(page)
        expect(page.locator("#decisions li")).to_have_count(3, timeout=PATIENCE)
        press(page, "e", "Control+A")
        page.keyboard.type("9999")
        press(page, "Enter")
        expect(page.locator("#toast")).to_contain_text("outside 1920x1080", timeout=PATIENCE)
    judgement = held(workspace)
    assert judgement.corrections.actions[0].parameters.x == 400  # type: ignore[attr-defined]
    assert judgement.verdict is not None
    assert judgement.verdict.value.reason == "unfinished"  # type: ignore[attr-defined]
    notes = [decision.value for decision in judgement.applied if decision.kind == "note"]
    assert [note.text for note in notes] == ["look here"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [(1440, 900), (1024, 700)])
def test_screenshot_decision_and_undo_are_visible_and_the_screenshot_can_be_zoomed(
    root, browser, size
):
    page = browser.new_page(viewport={"width": size[0], "height": size[1]})
    with served(open_workspace(root)) as running:
        show(page, running, "first/0")
        press(page, "b")
        wait_until_saved(page)
        for place in ("#canvas", "#in-force button", "#steps li.chosen", "#verdict-buttons"):
            box = page.locator(place).bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= size[1], place
        canvas = page.locator("#canvas").bounding_box()
        assert canvas is not None
        assert canvas["width"] >= 0.7 * size[0]
        x = canvas["x"] + canvas["width"] / 4
        y = canvas["y"] + canvas["height"] / 4
        page.mouse.move(x, y)
        press(page, "z")
        at = page.locator("#canvas").bounding_box()
        assert at is not None
        assert (at["width"], at["height"]) == (1920, 1080)
        assert abs((x - at["x"]) - 1920 / 4) <= 2  # the same point is under the pointer
        page.mouse.down()
        page.mouse.move(x - 60, y - 40, steps=3)
        page.mouse.up()
        after = page.locator("#canvas").bounding_box()
        assert after is not None
        assert (round(at["x"] - after["x"]), round(at["y"] - after["y"])) == (60, 40)
        press(page, "z", "g")
        expect(page.locator("#tiles li")).not_to_have_count(0)
        page.select_option("#by-decision", "bad step")
        page.locator("#tiles li").click()
        wait_for_step(page, "first/0")
        expect(page.locator("#grid")).to_be_hidden()
    page.close()


def test_the_grid_sorts_by_doubt_and_draws_each_action_beside_its_whole_text(root, page):
    text = "a sentence that is far too long for a single line of a tile, " * 4
    with served(open_workspace(root)) as running:
        show(page, running, "first/0")
        press(page, "g")
        page.select_option("#by-order", "recorded")
        expect(page.locator("#tiles > li").first.locator("circle")).to_have_count(1)
        expect(page.locator("#tiles > li").first.locator("rect")).to_have_count(1)
        page.evaluate("(text) => { allSteps[2].text = text; showTiles(); }", text)
        words = page.locator("#tiles .does").nth(2)
        expect(words).to_contain_text(text.strip())
        sizes = words.evaluate("(element) => [element.scrollWidth, element.clientWidth]")
        assert sizes[0] <= sizes[1]  # wrapped, not cut off
        page.evaluate("() => { allSteps[2].doubt = 9; showTiles(); }")
        expect(words).to_contain_text(text.strip())
        page.select_option("#by-order", "doubt")
        expect(page.locator("#tiles .does").first).to_contain_text(text.strip())


def test_fifteen_steps_are_visible_without_scrolling(real_root, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    with served(open_workspace(real_root)) as running:
        show(page, running, "20261121_212358/0")
        expect(page.locator("#steps li")).to_have_count(15)
        strip = page.locator("#steps").evaluate(
            "(list) => [list.scrollWidth - list.clientWidth, list.scrollHeight - list.clientHeight]"
        )
        assert strip == [0, 0]
        press(page, "ArrowRight")  # to the step with typed text
        wait_for_step(page, "20261121_212358/1")
        evidence = page.locator("#evidence")
        expect(evidence).to_contain_text("by the scans, read by the layout uk")
        expect(evidence).to_contain_text("pixels, ±38 ms")
    page.close()


def test_a_marked_box_is_covered_and_a_cleared_box_is_visible(root, page):
    workspace = open_workspace(root)

    def covered() -> bool:
        build_stage(workspace, REDACTIONS_STAGE, "first")
        if not is_shown_redacted(workspace.store, "first"):
            return False
        folder = workspace.store.open("redactions/first")[0]
        with Image.open(folder / "steps/000/screenshot.png") as shown_now:
            part = shown_now.convert("RGB").crop((300, 200, 900, 500))
        return len(part.getcolors(1 << 24) or ()) == 1

    def click(x: float, y: float) -> None:
        box = page.locator("#canvas").bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + x * box["width"] / 1920, box["y"] + y * box["height"] / 1080)

    with served(workspace) as running:
        show(page, running, "first/0")
        press(page, "m")
        click(300, 200)
        click(900, 500)
        wait_until_saved(page)
        expect(page.locator("#decisions li")).to_contain_text("a part of step 0 is private")
        assert covered()
        page.reload()
        wait_for_step(page, "first/0")
        press(page, "m")
        click(600, 300)
        wait_until_saved(page)
        expect(page.locator("#decisions li")).to_have_count(2)
        assert not covered()


def test_a_draft_survives_a_reload(root, page):
    with served(open_workspace(root)) as running:
        page.goto(f"{running.url}#second")
        wait_for_step(page, "second/0")
        press(page, "i", "End")
        page.keyboard.type(" And more")
        page.reload()
        wait_for_step(page, "second/0")
        assert "And more" in page.locator("#words").input_value()


def test_the_video_shows_the_frame_of_the_step(root, page):
    workspace = open_workspace(root)
    with served(workspace) as running:
        show(page, running, "first/1")
        wanted = page.evaluate("() => current().pts")
        press(page, "f")
        film = page.locator("#canvas")
        expect(film).to_have_attribute("data-pts", f"{wanted:.2f}", timeout=PATIENCE)
        frames = running.ask("api/demonstrations/first/frames").json
        place = min(range(len(frames)), key=lambda at: abs(frames[at] - wanted))
        for by, key in ((1, "."), (0, ","), (-1, ",")):
            press(page, key)
            pts = f"{frames[place + by]:.2f}"
            expect(film).to_have_attribute("data-pts", pts, timeout=PATIENCE)
        press(page, "f")
        wait_for_step(page, "first/1")


def test_nothing_is_lost_when_the_server_is_killed_between_two_keys(root, page):
    port = 9573
    running = start_command(root, port, "--author", "ann")
    show(page, running, "first/0")
    press(page, "b")
    wait_until_saved(page)
    kill(running)
    press(page, "j", "b", "a")
    expect(page.locator("#saving")).to_contain_text("2 not saved", timeout=PATIENCE)
    again = start_command(root, port, "--author", "ann")
    page.reload()
    wait_until_saved(page)
    kill(again)
    reviews = Reviews(open_workspace(root).store)
    reviews.refresh()
    assert [decision.kind for decision in reviews.all()] == ["bad_step", "bad_step", "approve"]
    judgement = held(open_workspace(root))
    assert judgement.corrections.bad_steps == [0, 1]
    assert judgement.status == "approved"


def test_two_browsers_and_a_rebuild_at_once_lose_nothing(tmp_path, browser, page):
    workspace = open_workspace(tmp_path)
    recorded = make_trajectory(tmp_path, actions=(CLICK,) * 3)
    commit_trajectory(workspace, recorded)
    with served(workspace) as running:
        other = browser.new_page()
        for tab in (page, other):
            show(tab, running, "demo/0")
        press(page, "a")
        press(other, "b")
        for tab in (page, other):
            wait_until_saved(tab)
        task = json.loads((recorded.path / "task.json").read_text())
        (recorded.path / "task.json").write_text(json.dumps({**task, "difficulty": "hard"}))
        commit_trajectory(workspace, recorded)  # another version with the same steps
        press(page, "j", "b")
        press(other, "End", "b")
        for tab in (page, other):
            wait_until_saved(tab)
        other.close()
        page.reload()
        expect(page.locator("#decisions li")).to_have_count(4, timeout=PATIENCE)
    judgement = held(workspace, "demo")
    assert (judgement.status, judgement.corrections.bad_steps) == ("approved", [0, 1, 2])
    assert len(judgement.applied) == 4


def test_a_decision_about_a_version_that_was_rebuilt_meanwhile_is_not_saved_silently(
    tmp_path, page
):
    workspace = open_workspace(tmp_path)
    commit_trajectory(workspace, make_trajectory(tmp_path, actions=(CLICK,) * 2))
    with served(workspace) as running:
        show(page, running, "demo/0")
    commit_trajectory(workspace, make_trajectory(tmp_path, actions=(CLICK,) * 2, shade=7))
    press(page, "a")
    with served(workspace, port=running.port):  # the store has a newer version than the page shows
        again = page.get_by_role("button", name="Send for this version")
        expect(again).to_be_visible(timeout=PATIENCE)
        assert held(workspace, "demo").status == "open"
        again.click()
        wait_until_saved(page)
    assert held(workspace, "demo").status == "approved"


def test_hostile_text_stays_text(tmp_path, page):
    script = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    workspace = open_workspace(tmp_path)
    typed = ("type", {"text": script})
    target = {"id": "node_1", "role": "button", "name": script}
    properties: dict[str, Any] = {
        "instruction": script,
        "application": script,
        "targets": {1: target},
    }
    recorded = make_trajectory(tmp_path, name := "hostile", (typed, CLICK), **properties)
    tree = recorded.path / "steps/001/ui_tree.json"
    document = json.loads(tree.read_text())
    bounds = {"x": 300, "y": 300, "width": 200, "height": 60}
    document["root"]["children"] = [{**target, "bounds": bounds}]
    tree.write_text(json.dumps(document))
    commit_trajectory(workspace, recorded)
    dialogs: list[Any] = []

    def dismiss(dialog: Any) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    with served(workspace, author=script) as running:
        show(page, running, f"{name}/0")
        expect(page.locator("#instruction")).to_have_text(script)
        press(page, "j")
        wait_for_step(page, f"{name}/1")
        expect(page.locator("#tree li", has_text="onerror")).to_have_count(1, timeout=PATIENCE)
        page.locator("#tree li", has_text="onerror").hover()
        press(page, "c")
        page.keyboard.type(script)
        press(page, "Enter", "r")
        page.locator("#reject-text").fill(script)
        page.locator("#reasons li").first.click()
        wait_until_saved(page)
        page.reload()
        expect(page.locator("#decisions li", has_text="onerror")).to_have_count(2, timeout=PATIENCE)
        assert page.locator("main img, aside img, nav img, body script").count() == 0
    assert dialogs == []


def test_another_sites_page_reads_and_writes_nothing(root, browser):
    workspace = open_workspace(root)
    with served(workspace) as running, served(open_workspace(root)) as other:
        page = browser.new_page()
        page.goto(other.url)  # a page of another origin, which even has the token
        attack = """async (url) => {
          const tries = [fetch(url + "api/queue"), fetch(url + "api/queue", {mode: "no-cors"}),
            fetch(url + "api/demonstrations/first/decisions", {method: "POST", mode: "no-cors",
              body: JSON.stringify({id: "a".repeat(32), version: "x", kind: "approve"})})];
          return (await Promise.allSettled(tries)).map((one) => one.status);
        }"""
        assert page.evaluate(attack, running.url) == ["rejected"] * 3
        page.close()
    assert workspace.store.list_documents("reviews") == []


def test_annotations_are_shown_and_a_person_overrides_them(root, page):
    workspace = open_workspace(root)
    line = {"demonstration": "first", "step": 0, "kind": "thought", "value": "A model's <b>words"}
    line |= {"source": "model", "author": "m-1"}
    verdict = line | {"kind": "step_correct", "value": True, "step": 1}
    other = verdict | {"author": "m-2", "value": False}
    lines = "\n".join(map(json.dumps, (line, verdict, other)))
    (root / "said.jsonl").write_text(lines, encoding="utf-8")
    annotate_all(workspace.store, ["first"], [import_lines(root / "said.jsonl")])
    build_stage(workspace, ANNOTATIONS_STAGE, "first")
    with served(workspace) as server:
        page.goto(f"{server.url}#first")
        wait_for_step(page, "first/0")
        expect(page.locator("#annotations li")).to_have_text(
            ["thought: A model's [b]words · model"]
        )
        expect(page.locator("#queue li", has_text="disagreements")).to_have_count(1)
        page.keyboard.press("w")
        page.keyboard.press("h")
        page.keyboard.type("I look first.")
        page.keyboard.press("Enter")
        expect(page.locator("#decisions li").first).to_contain_text("thought of step 0: I look")
        page.keyboard.press("ArrowRight")
        wait_for_step(page, "first/1")
        expect(page.locator("#thought")).to_have_value("")
        wait_until_saved(page)
    build_stage(workspace, ANNOTATIONS_STAGE, "first")
    judged = open_judged(workspace.store, "first", Reviews(workspace.store), PrivacySettings())
    assert judged.trajectory.notes[0] == {
        "thought": ("I look first.", "human"),
        "step_correct": (False, "human"),
    }
