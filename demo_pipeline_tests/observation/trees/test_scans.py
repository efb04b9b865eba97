"""Tests of choosing the current scan of an action, and of reading a scan from the log."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.observation.trees.scans import boxes_of, current_scan, samples_agree
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.recording.events import build_events
from demo_pipeline.recording.logged_scans import (
    LenientScan,
    LoggedScan,
    RawScan,
    decode_scan,
    read_logged_scans,
    read_scan,
    scan_from_values,
)
from demo_pipeline_tests.observation.nodes import node


def scan(number: int, time: int, duration: int | None = 100) -> LoggedScan:
    return LoggedScan(number, 0, 0, time, duration)


def test_the_newest_finished_scan_is_current() -> None:
    scans = [scan(9, 3000), scan(2, 1000), scan(5, 2000), scan(12, 4000, 900)]
    current = current_scan(scans, 4500, since_ms=2500)
    assert current.scan == scans[0]
    assert (current.age_ms, current.freshness) == (1400, "fresh")
    assert current_scan(scans, 4500, since_ms=3500).freshness == "stale"


def test_a_scan_from_before_a_large_change_is_marked() -> None:
    """A dialog may have opened after the scan, so elements of the scan may be gone."""
    scans = [scan(2, 1000)]
    opened = [2000.0]
    assert current_scan(scans, 3000, 1500, opened).freshness == "changed"
    assert current_scan(scans, 1900, 1500, opened).freshness == "stale"
    assert current_scan(scans, 3000, 900, opened).freshness == "fresh"
    assert current_scan([*scans, scan(3, 2100)], 3000, 2500, opened).freshness == "stale"


def test_a_scan_that_ends_after_the_press_is_never_used() -> None:
    """A scan that ends after the press may show the effect of the press."""
    scans = [scan(5, 2000, 5000), scan(2, 1000, 9000)]
    current = current_scan(scans, 2500, since_ms=0)
    assert (current.scan, current.age_ms, current.freshness) == (None, None, "running")


def test_a_scan_that_ran_while_a_menu_opened_is_not_fresh() -> None:
    """The scan's logged time, 148 ms after the click, is its end.

    It began a second before the click.
    """
    ended = LoggedScan(5, 0, 0, 2148, 1260, stamped_at_end=True)
    assert (ended.begin_ms, ended.end_ms) == (888, 2148)
    assert current_scan([ended], 4000, since_ms=2000).freshness == "stale"
    assert current_scan([ended], 2200, since_ms=0).scan is ended


def stamped(folder: Path, scans: list[tuple[int, int]], *, at_end: bool) -> list[LoggedScan]:
    """Writes a log with scans and a pointer move every 50 ms, and reads the scans from it.

    Args:
        folder: folder for the log and its outputs.
        scans: (begin, duration) of each scan, milliseconds.
        at_end: whether the logged time of a scan is its end.
    """
    moves = [
        (time, {"event": "mousemove", "time": time, "data": {"x": 1, "y": 1}})
        for time in range(1_767_603_600_000, 1_767_603_610_000, 50)
    ]
    lines = list(moves)
    for begin, duration in scans:
        start = 1_767_603_600_000 + begin
        time = start + duration * at_end
        data = {"duration": duration, "tree": []}
        lines.append((start + duration + 3, {"event": "axtree", "time": time, "data": data}))
    lines.sort(key=lambda line: line[0])
    log = folder / "input_log.jsonl"
    log.write_text("\n".join(json.dumps(event) for _, event in lines), encoding="utf-8")
    build_events(log, folder)
    return read_logged_scans(folder)


@pytest.mark.parametrize("at_end", [False, True])
def test_the_lines_around_scans_show_what_their_times_mean(tmp_path: Path, at_end: bool) -> None:
    """Recorders write a scan's line when the scan has finished, whether they log start or end."""
    ran = [(1010, 700), (4020, 320), (7030, 1260)]
    scans = stamped(tmp_path, ran, at_end=at_end)
    assert [scan.begin_ms - 1_767_603_600_000 for scan in scans] == [begin for begin, _ in ran]
    assert [scan.stamped_at_end for scan in scans] == [at_end] * 3


def test_a_scan_that_begins_after_the_action_is_ignored() -> None:
    for scans in ([], [scan(1, 5000)]):
        current = current_scan(scans, 4999, since_ms=0)
        assert (current.scan, current.age_ms, current.freshness) == (None, None, "none")


def test_a_scan_without_duration_counts_from_its_start() -> None:
    current = current_scan([scan(1, 1000, None)], 1000, since_ms=0)
    assert (current.age_ms, current.freshness) == (0, "fresh")


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=8), st.integers(0, 60))
def test_no_current_scan_began_after_the_press(rows: list[tuple[int, int]], press: int) -> None:
    scans = [scan(number, time, duration) for number, (time, duration) in enumerate(rows)]
    current = current_scan(scans, press, since_ms=0)
    finished = [scan for scan in scans if scan.end_ms <= press]
    assert current == current_scan(scans[::-1], press, since_ms=0)
    if finished:
        assert current.scan is not None
        assert current.scan.time_ms == max(scan.time_ms for scan in finished)
    else:
        assert current.scan is None


def logged(path: Path, *lines: bytes) -> list[LoggedScan]:
    offset = 0
    scans = []
    for number, line in enumerate(lines, 1):
        scans.append(LoggedScan(number, offset, len(line), 0, 0))
        offset += len(line) + 1
    path.write_bytes(b"\n".join(lines))
    return scans


def names(scan: RawScan) -> list[str | None]:
    return [raw.name for raw in scan.flatten().nodes]


def test_one_scan_is_read_by_its_place(tmp_path: Path) -> None:
    log = tmp_path / "input_log.jsonl"
    lines = [
        json.dumps({"event": "axtree", "data": {"tree": [{"name": name}]}}).encode()
        for name in "ab"
    ]
    first, second = logged(log, *lines)
    assert names(read_scan(log, second)) == ["b"]
    assert names(read_scan(log, first)) == ["a"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"data": {"tree": [',
        b"[]",
        b'{"data": 7}',
        b"\xff\xfe",
        b"",
        b'{"data": NaN}',
    ],
)
def test_a_damaged_scan_is_named_by_its_line(tmp_path: Path, line: bytes) -> None:
    log = tmp_path / "input_log.jsonl"
    _, damaged = logged(log, b"{}", line)
    with pytest.raises(DemonstrationError) as caught:
        read_scan(log, damaged)
    assert caught.value.problems[0].location == "input_log.jsonl:2"


def test_a_bad_element_costs_neither_its_children_nor_the_scan() -> None:
    child = {"role": "Button", "name": "Save"}
    bad = {"role": 7, "name": "Bad", "children": [child, 5, None]}
    tree = decode_scan(json.dumps({"data": {"tree": [bad, {"name": "Next"}]}}).encode())
    assert isinstance(tree, LenientScan)
    assert names(tree) == ["", "Save", "Next"]
    assert tree.flatten().parents == [-1, 0, -1]
    assert tree.damaged_elements == 2  # the bad element and the number


WINDOW = node("Window", (0, 0, 600, 400), node("Text", (110, 105, 40, 12), name="Price"))
BUTTON = node("Button", (100, 100, 80, 20), name="Save")


@pytest.mark.parametrize(
    ("element", "point", "tree", "agrees"),
    [
        pytest.param(BUTTON, (120, 110), [WINDOW, BUTTON], True, id="in the tree"),
        pytest.param(BUTTON, (170, 110), [WINDOW], True, id="inside what the tree has there"),
        pytest.param(WINDOW | {"name": "w"}, (120, 110), [WINDOW, BUTTON], None, id="the desktop"),
        pytest.param(BUTTON, (300, 300), [WINDOW], None, id="not at its own point"),
        pytest.param({}, (300, 300), [WINDOW], None, id="an element without a box"),
        pytest.param(BUTTON, (120, 110), [node("Pane", (300, 0, 9, 9))], False, id="nothing there"),
        pytest.param(
            BUTTON,
            (170, 110),
            [WINDOW, node("Text", (160, 90, 90, 90))],
            False,
            id="something else there",
        ),
    ],
)
def test_the_recorders_own_samples_are_compared_with_the_tree(
    element: Any, point: tuple[int, int], tree: Any, agrees: bool | None
) -> None:
    sample = {"element": element, "position": {"x": point[0], "y": point[1]}}
    for name in ("random1", "random2"):
        data = {"tree": tree, "queries": {name: sample}}
        regular = decode_scan(json.dumps({"data": data}).encode())
        assert regular is not None
        for scan in (regular, scan_from_values(data)):
            nodes = scan.flatten().nodes
            assert samples_agree(scan, nodes, boxes_of(nodes)) is agrees


@pytest.mark.parametrize("depth", [400, 489])
def test_deep_trees_are_read_and_walked(tmp_path: Path, depth: int) -> None:
    text = '{"children":[' * depth + "{}" + "]}" * depth
    log = tmp_path / "input_log.jsonl"
    (scan,) = logged(log, f'{{"event":"axtree","data":{{"tree":[{text}]}}}}'.encode())
    levels = read_scan(log, scan).flatten().depths
    assert levels == list(range(1, depth + 2))


def test_half_a_letter_in_a_name_does_not_cost_the_scan(tmp_path: Path) -> None:
    log = tmp_path / "input_log.jsonl"
    (scan,) = logged(log, b'{"data":{"tree":[{"name":"\\ud83d"}]}}')
    assert names(read_scan(log, scan)) == ["\ud83d"]


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ({"x": 1.5, "y": -2, "width": 3, "height": 4}, (1.5, -2, 3, 4)),
        ([10, 20, 110, 70], (10, 20, 100, 50)),
        ([10, 20, 5, 70], None),
        ({"x": 0, "y": 0, "width": -1, "height": -1}, None),
        ({"x": None, "y": 0, "width": 1, "height": 1}, None),
        ({"x": True, "y": 0, "width": 1, "height": 1}, None),
        ({"x": 10**400, "y": 0, "width": 1, "height": 1}, None),
        ({"x": 1e308, "y": 0, "width": 1e308, "height": 1}, None),
        ([1, 2, 3], None),
        ("0,0,1,1", None),
        (None, None),
    ],
)
def test_boxes_are_read_in_every_notation(box: Any, expected: Any) -> None:
    plain = {"tree": [{"bbox": box}]}
    read = decode_scan(json.dumps({"data": plain}).encode())
    assert read is not None
    for scan in (scan_from_values(plain), read):
        ((*place,),) = boxes_of(scan.flatten().nodes).tolist()
        assert place == (list(expected) if expected else pytest.approx([math.nan] * 4, nan_ok=True))


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ({"absolute_position": "320.50;-220.00", "size": "100;50"}, (320.5, -220, 100, 50)),
        ({"absolute_position": "", "size": "100;50"}, (10, 20, 100, 50)),
        ({"absolute_position": "320.50;220.00"}, (10, 20, 100, 50)),
        ({"absolute_position": "left;top", "size": "100;50"}, (10, 20, 100, 50)),
        ({"absolute_position": [320, 220], "size": {"width": 1}}, (10, 20, 100, 50)),
    ],
)
def test_a_list_beside_a_place_on_the_screen_is_relative_to_its_window(
    places: dict[str, Any], expected: tuple[float, ...]
) -> None:
    """Some macOS recorders write `bbox` as a list relative to the window.

    Their field `absolute_position` has the place on the screen.
    """
    plain = {"tree": [{"bbox": [10, 20, 110, 70], **places}]}
    read = decode_scan(json.dumps({"data": plain}).encode())
    lenient = decode_scan(json.dumps({"data": {**plain, "queries": 7}}).encode())
    for scan in (scan_from_values(plain), read, lenient):
        assert scan is not None
        assert boxes_of(scan.flatten().nodes).tolist() == [list(expected)]
