"""Tests that each shell line in the documentation succeeds, or fails as its page says.

All lines run in one checkout, page by page.
"""

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.sync_api import expect

from demo_pipeline_tests.browser import opened_browser
from demo_pipeline_tests.doors.checkout import (
    INBOX,
    REVIEW,
    SERVER,
    Answer,
    fresh_checkout,
    plain_environment,
)
from demo_pipeline_tests.doors.page_lines import PAGES, lines_of
from demo_pipeline_tests.importers import source_forms
from demo_pipeline_tests.sample_workspace import DEMOS, write_demos
from demo_pipeline_tests.uploads import upload

# Line → expected exit code, if it is not 0. `--expect-daemon` fails, because no daemon runs in the
# test's own home of Dagster.
ENDS_WITH = {".venv/bin/demo-pipeline doctor --json --expect-daemon": 1}
# Page → commands whose results the page assumes, besides a store with the samples.
BEFORE = {
    "docs/guides/operations.md": [
        "eval truth data/predictions.jsonl --split any",
        "export data/exported",
    ]
}
SUITE = {page: [line for line in lines_of(page) if line.when == "suite"] for page in PAGES}
BUILT = {"data/osworld", "data/samples", "data/store", INBOX}  # paths that pages may share
INSTANCE = ("history", "schedules", "storage", "logs")


MY_RECORDING = "my_recording"  # a recording of the reader, which the pages call FOLDER
SAMPLES = ("20260105_090000", "20260106_140000", "20261121_212358", "20261121_212801")


def small_samples(folder: Path, names: Sequence[str] = SAMPLES) -> Path:
    """Writes recordings of a few seconds under the ids of the samples; returns their folder."""
    demos = folder / "made"
    write_demos(demos)
    for number, name in enumerate(names):
        upload(demos / list(DEMOS)[number % len(DEMOS)], folder / "samples", name)
    return folder / "samples"


class Person:
    """A reader who types the lines of the pages.

    A line that several pages contain is typed once. `make ui` is not typed, because test_browser.py
    tests it.
    """

    def __init__(self, root: Path, samples: Path) -> None:
        self.checkout = fresh_checkout(root, samples)
        upload(samples / "20260105_090000", root, MY_RECORDING)
        for folder in (root, root / "clips"):  # recordings of another tool
            source_forms.owamcap(samples / "20260105_090000", folder, window=False)
        self.known: set[str] = {SERVER}

    def begin(self) -> None:
        """Restores shell variables, Dagster's home and data/ for a new page; keeps `BUILT`."""
        root = self.checkout.root
        self.checkout.variables = plain_environment()
        data = {path.relative_to(root).as_posix(): path for path in (root / "data").iterdir()}
        old = [path for name, path in data.items() if name not in BUILT]
        for path in [*old, *(root / name for name in INSTANCE)]:
            path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)

    def type(self, page: str) -> list[Answer]:
        answers = []
        exported = False
        for line in SUITE[page]:
            words = line.text.partition(" #")[0].strip()
            exported = exported or words.startswith("export ")
            if exported or words not in self.known:
                answers.append(self.checkout.type(line.text))
            if not exported:
                self.known.add(words)
        return answers


def failures(answers: list[Answer]) -> list[str]:
    return [
        f"$ {answer.line}\n{answer.output}\nexit code {answer.code}"
        for answer in answers
        if answer.code != ENDS_WITH.get(answer.line.partition(" #")[0].strip(), 0)
    ]


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Person:
    """A reader who has typed all lines of README.md."""
    folder = tmp_path_factory.mktemp("typed")
    person = Person(folder / "checkout", small_samples(folder, SAMPLES[::2]))
    answers = person.type("README.md")
    assert failures(answers) == []
    assert "2 done, 0 quarantined" in answers[0].output
    [run] = [answer for answer in answers if answer.line == ".venv/bin/demo-pipeline run"]
    assert "1 done, 0 quarantined, 2 up to date" in run.output  # the reader's own recording
    assert "data/store/sft" in answers[0].output.split()  # a path that works in this folder
    assert (person.checkout.root / "data/exported/dataset/index.json").is_file()
    return person


@pytest.mark.parametrize("page", [page for page, lines in SUITE.items() if lines])
def test_every_line_of_a_page_succeeds(page, person):
    person.begin()
    before = [f".venv/bin/demo-pipeline {line}" for line in BEFORE.get(page, ())]
    assert failures([person.checkout.type(line) for line in before]) == []
    assert failures(person.type(page)) == []
    if SUITE[page][-1].text.startswith("export "):  # the exported settings must be valid
        assert failures([person.checkout.type(".venv/bin/demo-pipeline quarantine")]) == []


@pytest.mark.browser
def test_four_commands_show_the_steps_of_ones_own_recording(tmp_path):
    """Covers a newcomer's first hour: the checkout is empty, and no other page was read."""
    lines = [line.text for line in lines_of("README.md")]
    begin = lines.index("make setup")
    *before, review = lines[begin : begin + 4]
    assert review.startswith(REVIEW)
    samples = small_samples(tmp_path, SAMPLES[:1])
    checkout = fresh_checkout(tmp_path / "checkout", samples)
    upload(samples / SAMPLES[0], checkout.root, MY_RECORDING)
    (checkout.root / INBOX).mkdir()  # a fresh clone contains this folder
    assert failures([checkout.type(line) for line in before]) == []
    with checkout.reviewing(review) as address, opened_browser() as browser:
        page = browser.new_page()
        page.goto(address)
        expect(page.locator("#facts")).to_contain_text(MY_RECORDING)
        expect(page.locator("#steps li").first).to_have_text("0 click")
        expect(page.locator("#sentence")).to_contain_text("Agree")
        expect(page.locator(f'#canvas[data-shown="{MY_RECORDING}/0"]')).to_be_attached()


def test_only_commands_that_cannot_run_here_are_marked():
    """If you mark another line, give a reason on the page and change the number here."""
    lines = [line for page in PAGES for line in lines_of(page)]
    marked = Counter(line.reason for line in lines if line.when == "not run")
    assert marked == {
        "a GPU": 1,
        "a cluster": 13,
        "an account": 2,
        "OSWorld": 1,
        "hours": 6,  # the benchmarks
        "more than 1 GB": 1,
    }
    assert Counter(line.when for line in lines) == {"suite": 63, "minutes": 61, "not run": 24}
