"""Tables in a terminal of 80 columns: names, widths, and paths that can be copied."""

import logging
from typing import Any

import pytest

from demo_pipeline.cli import tables
from demo_pipeline.runs.results import DatasetOutcome, DemonstrationResult, Status

LONG_PATH = (
    f"/mnt/{'recordings-of-the-team/' * 5}store/datasets/demonstrations--me--20260101_000000"
)
DATASETS = [
    DatasetOutcome("sft_samples", "/store/sft", {"records": {"train": 3, "test": 1}}),
    DatasetOutcome("cudag_dataset", LONG_PATH, {"records": {"train": 0, "test": 4}}),
    DatasetOutcome("messages_dataset", "/store/messages", {"records": {"test": 4}}),
    DatasetOutcome("trajectory_index", "/store/dataset", {"trajectories": 1, "steps": 4}),
]


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def printed(capsys: pytest.CaptureFixture[str], datasets: list[DatasetOutcome]) -> list[str]:
    summary = {"outcome": "done", "application": "files", "steps": 4, "leaks": 0, "seconds": 61.25}
    result = DemonstrationResult("20260105_090000", Status.BUILT, summary)
    tables.report_run([result], 0, datasets, 7.0)
    return capsys.readouterr().out.splitlines()


def test_the_column_with_the_length_of_the_video_says_so(capsys):
    lines = printed(capsys, [])
    [heading] = [line for line in lines if line.startswith("demonstration ")]
    assert heading.split()[-2:] == ["video", "s"]
    [row] = [line for line in lines if line.startswith("20260105_090000")]
    assert row.split()[-1] == "61.2"
    assert max(map(len, lines)) <= 80


def test_a_path_is_on_one_line(capsys):
    lines = printed(capsys, DATASETS)
    [row] = [line for line in lines if line.startswith("cudag_dataset  ")]
    assert row.endswith(LONG_PATH)
    assert [line for line in lines if line != line.rstrip() and "sft" in line] == []


def test_datasets_without_a_train_split_are_named_with_a_remedy(capsys):
    lines = printed(capsys, DATASETS)
    [sentence] = [line for line in lines if "has no train split" in line]
    assert sentence.startswith("cudag_dataset, messages_dataset has no train split")
    assert "train_ratio = 1" in sentence
    assert [line for line in printed(capsys, DATASETS[:1]) if "train split" in line] == []


def test_the_bar_names_the_items_in_progress():
    names = ["20260105_090000", "20260106_140000"]
    with tables.progress_bar(lambda: names) as bar:
        task = bar.add_task("demonstrations", total=2)
        column: Any = bar.columns[-1]
        assert str(column(bar.tasks[0])) == "20260105_090000 +1"
        bar.update(task, completed=2)
        assert str(column(bar.tasks[0])) == ""


def test_the_overview_of_statistics_has_no_wide_line(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")
    rows = [{"application": f"application-number-{n}", "trajectories": 20 - n} for n in range(12)]
    overview = [{f"a long name of a number {n}": n for n in range(12)}]
    tables.print_statistics({"overview": overview, "applications": rows}, everything=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    text = " ".join(line.strip() for line in lines)
    assert all(f"application-number-{n} {20 - n}" in text for n in range(12))


def test_no_bar_is_drawn_while_the_log_is_printed(monkeypatch):
    monkeypatch.setattr(tables, "shown_level", lambda: logging.INFO)
    assert tables.progress_bar().disable
    monkeypatch.setattr(tables, "shown_level", lambda: logging.WARNING)
    assert not tables.progress_bar().disable
