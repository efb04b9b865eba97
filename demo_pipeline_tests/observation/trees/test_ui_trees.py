"""Tests of the stage `ui_trees` on simulated recordings: current scans, targets and checks."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from demo_pipeline.actions.action_tables import ACTIONS_FILE
from demo_pipeline.observation.trees.ui_trees import (
    build_ui_trees,
    check_cursor,
    check_known_roles,
    check_scans_usable,
    check_trees,
    read_tree_rows,
)
from demo_pipeline.recording.events import build_events
from demo_pipeline_tests.observation.made import Observed
from demo_pipeline_tests.simulator.desktop import Box


def build(recording: Observed, out: Path, log: Path | None = None) -> list[dict[str, Any]]:
    """Builds the trees of a recording, and returns their rows.

    If `log` is given, its scans replace those of the recording. The actions must be the same.
    """
    out.mkdir()
    events = recording.out / "events"
    if log is not None:
        events = out.parent / "events"
        events.mkdir()
        build_events(log, events)
    build_ui_trees(
        log or recording.folder / "input_log.jsonl",
        "windows",
        events,
        recording.out / "actions",
        recording.evidence,
        out,
    )
    return read_tree_rows(out)


@pytest.fixture(scope="module")
def trees(plain: Observed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trees") / "out"
    build(plain, out)
    return out


def with_scans(recording: Observed, path: Path, change: Any) -> Path:
    """Writes the log of a recording with changed scans to `path`.

    `change` returns the new content of a scan, or None to drop the scan.
    """
    lines = []
    for text in (recording.folder / "input_log.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(text)
        if event["event"] != "axtree":
            lines.append(text)
        elif (data := change(event["data"])) is not None:
            lines.append(f'{{"event":"axtree","time":{event["time"]},"data":{data}}}')
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def with_first_actions(recording: Observed, out: Path, count: int) -> Observed:
    """Returns the recording with only its first actions."""
    shutil.copytree(recording.out / "actions", out / "actions")
    table = pq.read_table(out / "actions" / ACTIONS_FILE)
    pq.write_table(table.slice(0, count), out / "actions" / ACTIONS_FILE)
    return replace(recording, out=out)


def test_targets_are_what_was_clicked(plain: Observed, trees: Path) -> None:
    """If the screen did not change after the scan, the hit test finds the clicked element."""
    by_press = {action.press_ms: action for action in plain.truth.actions}
    compared = 0
    for row in read_tree_rows(trees):
        action = plain.actions[row["action_index"]]
        true = by_press.get(action.press_ms)
        if true is None or true.target is None or row["target_method"] != "hit_test":
            continue
        scanned = plain.truth.timeline.at(row["scan_ms"]).state
        if scanned.moved != plain.truth.timeline.at(action.press_ms).state.moved:
            continue
        assert (row["target_name"], row["target_role"]) == (true.target_name, true.target_role)
        box = Box(*(row[f"target_{side}"] // 3 for side in ("x", "y", "width", "height")))
        assert box == true.target
        compared += 1
    assert compared >= 4


def test_typing_goes_to_the_field_that_was_clicked(plain: Observed, trees: Path) -> None:
    rows = {row["action_index"]: row for row in read_tree_rows(trees)}
    typed = next(a for a in plain.actions if a.action_type == "type")
    row = rows[typed.action_index]
    assert (row["target_name"], row["target_role"]) == ("Name", "textfield")
    assert row["target_method"] in {"focused", "last_click"}


def test_each_action_has_a_valid_tree_with_its_target(plain: Observed, trees: Path) -> None:
    assert check_trees(trees, plain.out / "actions") == []
    assert check_known_roles(trees) == []
    for row in read_tree_rows(trees):
        action = plain.actions[row["action_index"]]
        assert row["scan_ms"] <= action.press_ms
        assert row["freshness"] in {"fresh", "stale", "changed", "running"}
        if row["target_id"]:
            assert f'"{row["target_id"]}"' in (trees / row["file"]).read_text(encoding="utf-8")


def test_the_content_of_a_text_field_is_not_written(plain: Observed, trees: Path) -> None:
    typed = next(a.text for a in plain.actions if a.action_type == "type")
    assert typed
    for path in trees.glob("*.json"):
        assert typed not in path.read_text(encoding="utf-8")


def test_a_log_without_scans_gives_roots_only(plain: Observed, tmp_path: Path) -> None:
    log = with_scans(plain, tmp_path / "log.jsonl", lambda _: None)
    rows = build(plain, tmp_path / "out", log)
    assert {row["freshness"] for row in rows} == {"none"}
    assert {row["nodes"] for row in rows} == {0}
    assert {row["target_id"] for row in rows} == {None}
    assert check_trees(tmp_path / "out", plain.out / "actions") == []


@pytest.mark.no_cover  # measuring coverage here is slow; other tests run the same lines
@pytest.mark.parametrize(("depth", "actions"), [(400, 99), (490, 3)])
def test_trees_as_deep_as_web_pages_get_come_through(
    plain: Observed, tmp_path: Path, depth: int, actions: int
) -> None:
    """The time for finding a target grows with the square of the depth of the tree.

    Therefore, the deepest tree is tested with only a few actions.
    """
    box = '"bbox":{"x":0,"y":0,"width":300,"height":200}'
    opened = f'{{"role":"Pane","name":"",{box},"children":['
    text = f'{{"duration":50,"tree":[{opened * depth}{"]}" * depth}]}}'
    log = with_scans(plain, tmp_path / "log.jsonl", lambda _: text)
    first = with_first_actions(plain, tmp_path / "made", actions)
    rows = build(first, tmp_path / "out", log)
    assert {row["nodes"] for row in rows if row["freshness"] != "none"} == {depth}
    assert check_trees(tmp_path / "out", first.out / "actions") == []


def test_roles_that_no_table_knows_fail_their_check(plain: Observed, tmp_path: Path) -> None:
    def renamed(data: dict[str, Any]) -> str:
        return json.dumps(data).replace('"role": "Button"', '"role": "Gizmo"')

    log = with_scans(plain, tmp_path / "log.jsonl", renamed)
    build(plain, tmp_path / "out", log)
    (problem,) = check_known_roles(tmp_path / "out")
    assert "have an unknown role" in problem.message


@pytest.mark.parametrize("shift", [0, 200])
def test_the_recorders_own_hit_tests_are_compared_with_ours(
    plain: Observed, tmp_path: Path, shift: int
) -> None:
    """If the boxes of a tree do not match the logged coordinates, the check fails."""

    def asked(data: dict[str, Any]) -> str:
        button = {"role": "Button", "name": "Agree", "bbox": box(20, 30, 40, 12)}
        moved = button | {"bbox": box(20 + shift, 30, 40, 12)}
        window = {"role": "Window", "name": "w", "bbox": box(0, 0, 640, 360), "children": [moved]}
        cursor = {"position": {"x": 30, "y": 35}, "element": button}
        return json.dumps(data | {"tree": [window], "queries": {"cursor": cursor}})

    log = with_scans(plain, tmp_path / "log.jsonl", asked)
    rows = build(plain, tmp_path / "out", log)
    assert {row["cursor_agrees"] for row in rows if row["scan_ms"]} == {shift == 0}
    assert [problem.code for problem in check_cursor(tmp_path / "out")] == ["cursor_differs"] * (
        shift > 0
    )


def test_a_scan_with_almost_no_nodes_is_reported_as_sparse(plain: Observed, tmp_path: Path) -> None:
    """The tree of an application without accessibility contains only a window."""

    def bare(_: dict[str, Any]) -> str:
        return json.dumps({"tree": [{"role": "Window", "name": "w", "bbox": box(0, 0, 640, 360)}]})

    log = with_scans(plain, tmp_path / "log.jsonl", bare)
    rows = build(plain, tmp_path / "out", log)
    assert {row["freshness"] for row in rows if row["scan_ms"]} == {"sparse"}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({}, id="empty"),
        pytest.param({"tree": [{"role": "Window", "children": [{"role": "Edit"}]}]}, id="no boxes"),
        pytest.param({"tree": [{"role": 7, "bbox": {"x": 0, "y": 0}}]}, id="a role is a number"),
    ],
)
def test_an_empty_or_malformed_scan_counts_as_none_and_is_named(
    plain: Observed, tmp_path: Path, data: dict[str, Any]
) -> None:
    log = with_scans(plain, tmp_path / "log.jsonl", lambda _: json.dumps(data))
    rows = [row for row in build(plain, tmp_path / "out", log) if row["scan_event"]]
    assert rows
    assert {(row["freshness"], row["nodes"], row["target_id"]) for row in rows} == {
        ("unreadable", 0, None)
    }
    times = set()
    for row in rows:
        tree_file = tmp_path / "out" / f"{row['action_index']:03d}.json"
        times.add(json.loads(tree_file.read_text(encoding="utf-8"))["timestamp"])
    assert len(times) == len(rows)  # each tree has the time of its own action
    problems = check_scans_usable(tmp_path / "out")
    assert [problem.line for problem in problems] == sorted({row["scan_event"] for row in rows})


def test_a_bad_element_is_left_out_alone_and_named(plain: Observed, tmp_path: Path) -> None:
    """Each scan of the recording has an element whose role is a number."""

    def spoilt(data: dict[str, Any]) -> str:
        data["tree"].append({"role": 7, "bbox": box(0, 0, 1, 1)})
        return json.dumps(data)

    whole = build(plain, tmp_path / "whole")
    log = with_scans(plain, tmp_path / "log.jsonl", spoilt)
    rows = build(plain, tmp_path / "out", log)
    columns = ("target_id", "target_role", "target_name", "target_method")
    assert [[row[name] for name in columns] for row in rows] == [
        [row[name] for name in columns] for row in whole
    ]
    scanned = [row for row in rows if row["scan_event"]]
    assert {row["damaged_elements"] for row in scanned} == {1}
    assert {row["damaged_elements"] for row in whole} == {0}
    problems = check_scans_usable(tmp_path / "out")
    assert {problem.code for problem in problems} == {"damaged_elements"}
    assert [problem.line for problem in problems] == sorted({row["scan_event"] for row in scanned})


def test_a_scan_that_contradicts_its_recorder_is_marked(plain: Observed, tmp_path: Path) -> None:
    """The recorder's hit test at a random point found an element that the tree does not contain."""

    def contradicted(data: dict[str, Any]) -> str:
        sample = {"role": "Button", "name": "Ghost", "bbox": box(600, 300, 20, 20)}
        label = {"role": "Text", "name": "here", "bbox": box(595, 305, 10, 10)}
        data["tree"].append(label)
        data["queries"] = {"random2": {"element": sample, "position": {"x": 602, "y": 307}}}
        return json.dumps(data)

    whole = build(plain, tmp_path / "whole")
    assert False not in {row["samples_agree"] for row in whole}
    assert True in {row["samples_agree"] for row in whole}
    log = with_scans(plain, tmp_path / "log.jsonl", contradicted)
    rows = build(plain, tmp_path / "out", log)
    scanned = [row for row in rows if row["scan_event"]]
    assert {row["samples_agree"] for row in scanned} == {False}
    problems = check_scans_usable(tmp_path / "out")
    assert {problem.code for problem in problems} == {"contradicted_scan"}
    assert [problem.line for problem in problems] == sorted({row["scan_event"] for row in scanned})


def box(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "width": width, "height": height}


def test_a_damaged_tree_is_named(plain: Observed, trees: Path, tmp_path: Path) -> None:
    for path in trees.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "000.json").write_text('{"root": 7}', encoding="utf-8")
    (tmp_path / "001.json").unlink()
    files = {problem.file for problem in check_trees(tmp_path, plain.out / "actions")}
    assert files == {"000.json", "001.json"}


def test_a_target_that_its_tree_does_not_hold_is_named(
    plain: Observed, trees: Path, tmp_path: Path
) -> None:
    for path in trees.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    first, *_, last = (row for row in read_tree_rows(trees) if row["target_id"])
    changes = ((first, first["target_id"], "node_9999"), (last, last["target_name"], "Other"))
    for row, old, new in changes:
        file = tmp_path / row["file"]
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace(f'"{old}"', f'"{new}"'), encoding="utf-8")
    problems = check_trees(tmp_path, plain.out / "actions")
    assert {(problem.code, problem.file) for problem in problems} == {
        ("target_differs", first["file"]),
        ("target_differs", last["file"]),
    }
