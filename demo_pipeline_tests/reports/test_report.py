"""Tests of the static report: its contents, private data that it leaves out, use without server."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from demo_pipeline.reports.report import WrittenReport, write_report
from demo_pipeline.review.triage import read_demonstration
from demo_pipeline.store.errors import StorageError
from demo_pipeline_tests.browser import opened_browser
from demo_pipeline_tests.sample_workspace import DEMOS, copy_of, open_workspace

WORDS = ["Ab, c!", "Please do the first task."]  # typed text and instruction of the demo `first`


def written(
    root: Path, dest: Path, *, screens: bool = True, **settings: Any
) -> tuple[WrittenReport, str, dict[str, Any]]:
    """Writes a report. Returns its size and counts, the text of data.js, and its parsed data."""
    report = write_report(open_workspace(root, **settings), dest, screens=screens)
    text = (dest / "data.js").read_text()
    return report, text, json.loads(text.removeprefix("const DATA = ").removesuffix(";\n"))


def test_every_step_is_in_the_report_with_its_screenshot(made_root, tmp_path):
    report, _, data = written(made_root, tmp_path / "report")
    files = [path for path in (tmp_path / "report").rglob("*") if path.is_file()]
    assert report.size == sum(path.stat().st_size for path in files)
    assert {row["id"] for row in data["demonstrations"]} == set(DEMOS)
    assert report.steps == report.pictures == len(data["steps"]) > 0
    assert all((tmp_path / "report" / step["picture"]).is_file() for step in data["steps"])


def test_demonstrations_are_sorted_by_doubt_and_list_their_signals(made_root, tmp_path):
    report, _, data = written(made_root, tmp_path / "report")
    queue = {
        name: read_demonstration(made_root / "store" / "triage" / name)
        for name in ("first", "second")
    }
    doubts = [shown_row["doubt"] for shown_row in data["demonstrations"]]
    assert doubts == sorted((row["doubt"] for row in queue.values()), reverse=True)
    for shown_row in data["demonstrations"]:
        for name, count in shown_row["signals"]:
            own = [step for step in data["steps"] if step["demonstration"] == shown_row["id"]]
            assert sum(name in step["signals"] for step in own) in {count, 0}
    assert any(step["signals"] for step in data["steps"])
    assert {step["review"] for step in data["steps"]} == {"open"}
    page = (tmp_path / "report" / "index.html").read_text()
    assert f"{report.size / 1e6:.1f} MB" in page
    assert "only the pointer changed from this screenshot to the next" in page


def test_markup_in_an_instruction_is_shown_as_text(made_root, tmp_path):
    root = copy_of(made_root, tmp_path / "root")
    task = root / "store" / "trajectories" / "first" / "task.json"
    words = task.read_text().replace("Please do the first task.", "</script><b>bold</b>12345")
    task.unlink()
    task.write_text(words)
    _, text, data = written(root, tmp_path / "report")
    page = (tmp_path / "report" / "index.html").read_text()
    assert "</script><b>bold</b>12345" in {row["instruction"] for row in data["demonstrations"]}
    assert "<b>bold" not in text + page


def test_typed_text_is_only_in_screenshots(made_root, tmp_path):
    _, text, data = written(made_root, tmp_path / "report")
    page = (tmp_path / "report" / "index.html").read_text()
    assert [step["label"] for step in data["steps"] if step["action"] == "type"] == [
        "type(6 chars)"
    ]
    assert "Ab, c" not in text + page
    assert "Please do the first task." in page


def test_without_screens_the_report_has_only_counts(made_root, tmp_path):
    report, text, _ = written(made_root, tmp_path / "report", screens=False)
    page = (tmp_path / "report" / "index.html").read_text()
    assert report.pictures == 0
    assert report.steps > 0
    assert not (tmp_path / "report" / "pictures").exists()
    assert not any(words in text + page for words in (*WORDS, "Agree"))


def test_an_unreadable_trajectory_is_named_and_the_others_are_reported(made_root, tmp_path):
    root = copy_of(made_root, tmp_path / "root")
    action = root / "store" / "trajectories" / "first" / "steps" / "000" / "action.json"
    action.unlink()
    action.write_text("{")
    report, _, _ = written(root, tmp_path / "report")
    assert report.demonstrations == 1
    assert "first" in (tmp_path / "report" / "index.html").read_text()


def test_a_folder_that_is_not_empty_is_refused_and_unchanged(made_root, tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(StorageError, match="not empty"):
        write_report(open_workspace(made_root), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.browser
def test_the_page_filters_steps_and_opens_one_without_a_network(made_root, tmp_path):
    written(made_root, tmp_path / "report")
    with opened_browser() as browser:
        page = browser.new_page()
        page.context.set_offline(True)
        failures: list[str] = []
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.goto((tmp_path / "report" / "index.html").as_uri())
        use_filters(page)
        assert failures == []


def use_filters(page: Page) -> None:
    """Uses the page's filters by demonstration, action, words and signal, and opens a step."""
    page.select_option("select[name=demonstration]", "second")
    page.select_option("select[name=action]", "hotkey")
    expect(page.locator(".tile")).to_have_count(1)
    page.locator(".tile").click()
    expect(page.locator("dialog")).to_contain_text("second · 1 hotkey")
    assert page.locator("dialog img").evaluate("image => image.naturalWidth") > 0
    page.locator("dialog").press("Escape")
    page.select_option("select[name=action]", "")
    page.fill("input[name=words]", "agree")
    expect(page.locator(".tile")).to_have_count(1)
    page.fill("input[name=words]", "")
    signal = page.locator("select[name=signal] option").nth(1).get_attribute("value")
    page.locator("[data-demonstration=first]").click()
    page.select_option("select[name=signal]", signal)
    count = page.evaluate(
        "signal => DATA.steps.filter(one => one.demonstration === 'first'"
        " && one.signals.includes(signal)).length",
        signal,
    )
    expect(page.locator(".tile")).to_have_count(count)
