"""Tests the signals of doubt: demonstrations with planted faults get more doubt than clean ones."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demo_pipeline.actions.action_tables import ACTIONS_FILE, CONTINUED, read_actions, write_actions
from demo_pipeline.files.parquet import read_rows, schema_problems
from demo_pipeline.observation.frames.screenshot_files import read_screenshot
from demo_pipeline.review import triage
from demo_pipeline.review.screenshot_comparison import near_duplicates, torn
from demo_pipeline.review.signals import DEMONSTRATION_SIGNALS, STEP_SIGNALS, doubt
from demo_pipeline.review.triage import (
    TRIAGE_SCHEMA,
    TRIAGE_STEPS_SCHEMA,
    build_triage,
    read_demonstration,
    read_steps,
)
from demo_pipeline_tests.review.made import (
    FAULTS,
    clean,
    triage_inputs,
    write_outputs,
    write_triage,
)
from demo_pipeline_tests.sample_workspace import DEMOS, open_workspace

SIGNALS = {
    "no_effect": {"no_effect", "undone"},
    "undone": {"undone"},
    "hesitating": {"hesitation"},
    "mistyping": {"corrections"},
    "off_task": {"off_task"},
    "jumping": {"discontinuity"},
    "unclocked": {"clock"},
    "cut_film": {"duration"},
    "bad_picture": {"black", "torn", "frozen"},
    "on_recorder": {"recorder_window"},
}


@pytest.fixture
def quick_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decodes equal screenshots only once, to save time."""
    seen: dict[bytes, Any] = {}

    def read(path: Path) -> Any:
        data = path.read_bytes()
        if data not in seen:
            seen[data] = read_screenshot(path)
        return seen[data]

    monkeypatch.setattr(triage, "read_screenshot", read)


@pytest.mark.usefixtures("quick_pictures")
@pytest.mark.parametrize("each", [2, pytest.param(4, marks=pytest.mark.minutes)])
def test_faults_of_ten_kinds_come_before_the_clean_demonstrations(tmp_path, each):
    rows: list[dict[str, Any]] = []
    names = list(FAULTS)
    faulty = {}
    for number in range(50 * each):
        demo = clean(number)
        if number % 5 == 0:
            faulty[demo.id] = names[number // 5 % len(names)]
            FAULTS[faulty[demo.id]](demo)
        out = tmp_path / "triage" / demo.id
        write_triage(demo, tmp_path, out)
        rows.append(read_demonstration(out))
    rows.sort(key=lambda row: (-row["doubt"], row["trajectory_id"]))
    assert Counter(faulty.values()) == dict.fromkeys(FAULTS, each)
    worst = [row for row in rows[: round(12.5 * each)] if row["trajectory_id"] in faulty]
    assert len(worst) >= 9 * each
    fresh = [row for row in rows if row["trajectory_id"] not in faulty]
    assert sum(row["flagged"] for row in fresh) <= 0.05 * len(fresh)
    for row in worst:
        kind = faulty[row["trajectory_id"]]
        signals = {name for name in SIGNALS[kind] if row.get(name) or row.get(f"{name}_steps")}
        assert signals, (kind, row)


def test_the_triage_of_real_stages_has_its_columns_and_is_reproducible(made_root):
    workspace = open_workspace(made_root)
    for name in DEMOS:
        folder, version = workspace.store.open(f"triage/{name}")
        assert schema_problems(folder / "steps.parquet", TRIAGE_STEPS_SCHEMA) == []
        assert schema_problems(folder / "demonstration.parquet", TRIAGE_SCHEMA) == []
        steps = read_steps(folder)
        row = read_demonstration(folder)
        assert read_rows(folder / "demonstration.parquet", TRIAGE_SCHEMA) == [row]
        assert [step["step_index"] for step in steps] == list(range(row["steps"]))
        assert all(check.passed for check in version.manifest.checks)
        assert "instruction" not in version.manifest.summary
        counts = {s.name: row[f"{s.name}_steps"] for s in STEP_SIGNALS}
        whole = [s.name for s in DEMONSTRATION_SIGNALS if row[s.name]]
        assert row["doubt"] == pytest.approx(doubt(counts, whole))


def test_a_damaged_screenshot_causes_no_crash_and_no_signal(tmp_path):
    demo = clean(3)
    inputs = triage_inputs(*write_outputs(demo, tmp_path))
    (inputs.folders["trajectories"] / "steps/001/screenshot.png").write_bytes(b"\x89PNG\r\n")
    build_triage(inputs, tmp_path)
    steps = read_steps(tmp_path)
    assert len(steps) == len(demo.steps)
    for step in steps:
        assert not any(step[name] for name in ("no_effect", "black", "torn", "frozen"))


def test_typing_that_goes_on_after_rests_is_counted_as_a_whole(tmp_path):
    demo = clean(6)
    place = next(n for n, step in enumerate(demo.steps) if step.kind == "type")
    demo.steps = demo.steps[: place + 1]
    manifest, folders = write_outputs(demo, tmp_path)
    actions = read_actions(folders["actions"])
    typed = actions.pop()
    pause = 1600
    for number, character in enumerate(typed.text or ""):
        start = typed.press_ms + pause * number
        part = replace(typed, text=character, press_ms=start, end_ms=start + 80, events=[])
        part.action_index = place + number
        part.flags = [CONTINUED] if number else []
        actions.append(part)
    write_actions(folders["actions"] / ACTIONS_FILE, actions)
    build_triage(triage_inputs(manifest, folders), tmp_path)
    step = read_steps(tmp_path)[place]
    row = read_demonstration(tmp_path)
    assert step["characters"] == len(typed.text or "") >= 10
    assert step["characters_per_second"] == pytest.approx(1 / 1.6, rel=0.1)
    assert step["pace"]
    assert not row["unused_time"]


def pictures(tmp_path: Path, *rows: Any) -> list[Any]:
    from demo_pipeline.files.image_files import PngWriter

    screenshots = []
    for number, (above, below) in enumerate(rows):
        screen = np.zeros((1080, 1920, 3), np.uint8)
        screen[:540], screen[540:] = above, below
        path = tmp_path / f"{number}.png"
        PngWriter().write(path, screen)
        screenshots.append(read_screenshot(path))
    return screenshots


def test_a_torn_screenshot_shows_half_of_each_neighbour(tmp_path):
    old, half, upside, new = pictures(tmp_path, (50, 90), (50, 200), (150, 90), (150, 200))
    assert torn(old, half, new)
    assert torn(old, upside, new)
    assert not torn(old, new, new)
    assert not torn(old, half, half)  # the lower half has changed for good


class TestNearDuplicates:
    """Near-duplicates have the same task, the same actions, and similar screens."""

    def duplicate_row(
        self, name: str, hashes: tuple[int, ...] = (1, 2), task: str = "t", kind: str = "type"
    ) -> dict[str, Any]:
        hashes_column = {"picture_hashes": [f"{number:016x}" for number in hashes]}
        return {
            "trajectory_id": name,
            "task_group": task,
            "action_types": ["click", kind],
            **hashes_column,
        }

    def test_a_group_contains_all_that_are_near_any_member(self):
        step = 0b111
        chain = [self.duplicate_row(name, (step << (3 * n), 0)) for n, name in enumerate("abc")]
        assert near_duplicates(chain) == [frozenset("abc")]

    def test_other_tasks_actions_or_screens_are_no_near_duplicates(self):
        far = (2**64 - 1, 2)
        assert near_duplicates([self.duplicate_row("a"), self.duplicate_row("b", task="u")]) == []
        assert (
            near_duplicates([self.duplicate_row("a"), self.duplicate_row("b", kind="click")]) == []
        )
        assert near_duplicates([self.duplicate_row("a"), self.duplicate_row("b", far)]) == []

    @pytest.mark.usefixtures("quick_pictures")
    def test_a_copy_of_a_demonstration_is_found(self, tmp_path):
        rows = []
        for number, name in ((4, "one"), (4, "two"), (5, "three")):
            demo = clean(number)
            demo.id = name
            demo.task = "Same task"
            write_triage(demo, tmp_path, tmp_path / "triage" / name)
            rows.append(read_demonstration(tmp_path / "triage" / name))
        assert near_duplicates(rows) == [frozenset({"one", "two"})]
