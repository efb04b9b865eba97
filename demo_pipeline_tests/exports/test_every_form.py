"""Tests of properties that the datasets of all export forms share."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from demo_pipeline.exports.assemble import build_form
from demo_pipeline.exports.form import form_of
from demo_pipeline.exports.record_stages import WITHOUT_FORM
from demo_pipeline.settings import BUILT_IN_EXPORTS, DatasetSettings
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory
from demo_pipeline_tests.datasets.builders import CLICK, SAME_PROMPT, make_trajectory, snapshot
from demo_pipeline_tests.datasets.seen_screens import element, make_seen

FORMS = sorted({*BUILT_IN_EXPORTS} - WITHOUT_FORM)
JUDGED = {"step_labels"}  # forms that also export failed demonstrations, one row for each
# Forms whose rows contain the unchanged instruction. Demonstrations with equal instructions are in
# one split group.
WITHOUT_PROMPTS = {*JUDGED, "sft"}
SAVE = element("button", "Save", (100, 200, 80, 31))


def seen(root: Path, name: str, **given: Any) -> DatasetTrajectory:
    return make_seen(root, name, [CLICK, CLICK], SAVE, **given)


@pytest.mark.parametrize("name", FORMS)
def test_the_same_input_gives_the_same_bytes_in_any_order(tmp_path, name):
    demos = [seen(tmp_path, f"demo_{n}", shade=9 * n, success=n < 3) for n in range(4)]
    for folder, order in (("one", demos), ("two", demos[::-1])):
        build_form(form_of(name), order, tmp_path / folder, DatasetSettings())
    assert snapshot(tmp_path / "one") == snapshot(tmp_path / "two") != {}


@pytest.mark.parametrize("name", [name for name in FORMS if name not in WITHOUT_PROMPTS])
def test_the_same_screen_with_the_same_words_is_not_in_two_splits(tmp_path, name):
    demos = [seen(tmp_path, f"demo_{n}", instruction=SAME_PROMPT[n % 2]) for n in range(6)]
    settings = DatasetSettings(train_ratio=0.5, val_ratio=0.3)
    summary = build_form(form_of(name), demos, tmp_path / "out", settings)
    assert summary.excluded_records["split_leak"] > 0
    assert [count > 0 for count in summary.records.values()].count(True) == 1


@pytest.mark.parametrize("name", FORMS)
def test_unreadable_and_failed_demonstrations_are_left_out_and_counted(tmp_path, name):
    ended: dict[str, dict[str, Any]] = {
        "good": {},
        "failed": {"success": False},
        "aborted": {"success": False, "rows": {0: {"status": "aborted", "reason": ""}}},
        "contaminated": {"osworld": "chrome_001"},
        "task.json": {},
        "hidden_actions.parquet": {},
        "steps/000/action.json": {},
    }
    demos = [seen(tmp_path, f"demo_{n}", shade=9 * n, **ended[key]) for n, key in enumerate(ended)]
    for demo, file in list(zip(demos, ended, strict=True))[4:]:
        (demo.path / file).write_text("[")
    summary = build_form(form_of(name), demos, tmp_path / "out", DatasetSettings())
    left_out = {key: count for key, count in summary.excluded_trajectories.items() if count}
    judged = {"failed"} if name in JUDGED else set()
    expected = {"failed": 1, "aborted": 1, "contaminated": 1, "unreadable": 3}
    assert left_out == {key: count for key, count in expected.items() if key not in judged}
    assert {problem.demonstration for problem in summary.problems} == {"demo_4", "demo_5", "demo_6"}
    assert summary.total > 0


@pytest.mark.parametrize("name", FORMS)
def test_a_lone_surrogate_stops_no_export(tmp_path, name):
    demo = make_seen(tmp_path, "demo", [("type", {"text": "a%"}), CLICK], SAVE)
    action = demo.path / "steps/000/action.json"
    action.write_text(action.read_text().replace("%", "\\ud800"))
    assert build_form(form_of(name), [demo], tmp_path / "out", DatasetSettings()).total > 0
    assert ("a?" in texts_below(tmp_path / "out")) == (name != "grounding")
    assert "ud800" not in texts_below(tmp_path / "out")


def texts_below(folder: Path) -> str:
    """Returns the text of all JSON files and Parquet tables below a folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    tables = [str(pq.read_table(path).to_pylist()) for path in files if path.suffix == ".parquet"]
    texts = [path.read_text("utf-8") for path in files if path.suffix in {".json", ".jsonl"}]
    return "\n".join([*tables, *texts])


@pytest.mark.parametrize("name", ["agentnet", "atif", "cua_lite"])
def test_an_unmoved_target_is_named_though_the_tree_differs_elsewhere(tmp_path, name):
    target = {"id": "node_0", "role": "button", "name": "Save"}
    rows = {0: {"tree_agreement": "differs"}}
    demo = make_trajectory(tmp_path, "demo", [CLICK], rows=rows, targets={0: target})
    action = demo.path / "steps/000/action.json"
    words = "Click the Save button."
    action.write_text(action.read_text().replace("Step 0 of the work", words))
    build_form(form_of(name), [demo], tmp_path / "out", DatasetSettings())
    assert words in texts_below(tmp_path / "out")
