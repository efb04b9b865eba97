import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_pipeline.files.json_files import json_bytes
from demo_pipeline.problems import DemonstrationError, Severity
from demo_pipeline.recording.input_log import scan_fault
from demo_pipeline.recording.meta import read_meta
from demo_pipeline_tests.recording.test_documented import META


def test_values_that_were_read_are_written_unchanged():
    meta, _ = read_meta(META.encode())
    again = json_bytes(meta)
    second, problems = read_meta(again)
    assert second == meta
    assert problems == []
    assert json.loads(again)["timestamp"] == "2025-03-04T15:18:16.813394600-05:00"


STAMP = '"timestamp": "2025-03-04T15:18:16Z"'


@pytest.mark.parametrize(
    "extra",
    [
        "",
        ', "quest": null, "reason": null, "title": null, "primary_monitor": null',
        ', "status": "recording"',
        ', "status": "in-progress", "duration_seconds": 21.5',
        ', "quest": {"title": "x", "objectives": null, "reward": null}',
        ', "title": "\\ud83d"',
        ', "version": 12',
    ],
)
def test_real_recorders_deviations_pass_without_a_warning(extra):
    meta, problems = read_meta(f"\ufeff{{{STAMP}{extra}}}".encode())
    assert problems == []
    assert json_bytes(meta)


def test_monitor_and_unknown_keys_are_kept():
    text = f'{{{STAMP}, "monitor": {{"width": 10, "height": 20}}, "app_version": [1]}}'
    meta, problems = read_meta(text.encode())
    assert meta.primary_monitor is not None
    assert (meta.primary_monitor.height, problems) == (20, [])
    assert json.loads(json_bytes(meta))["app_version"] == [1]


def test_systems_have_the_names_of_other_programs_too():
    names = ("darwin", " Win32", "Linux", "beos")
    read = [read_meta(f'{{{STAMP}, "platform": "{name}"}}'.encode())[0] for name in names]
    assert [meta.platform for meta in read] == ["macos", "windows", "linux", ""]


@pytest.mark.parametrize(
    ("platform", "locale", "logged_layout", "layout"),
    [
        ("windows", "en-US", "de-qwerty", "de"),
        ("windows", "fr-FR", "us-qwerty", "us"),
        ("windows", "en-US", "fr-azerty", "fr"),
        ("windows", "en-US", "fr-be", "other letters"),
        ("windows", "en-US", "us-dvorak", "other letters"),
        ("windows", "en-US", "pt-br-qwerty", "other punctuation"),
        ("windows", "en-GB", None, "uk"),
        ("windows", "en-GB", {"id": "us-qwerty"}, "uk"),
        ("macos", "fr-FR", "us-qwerty", "fr"),
    ],
)
def test_the_keyboard_is_the_one_that_a_windows_recorder_found(
    platform, locale, logged_layout, layout
):
    fields = {"platform": platform, "locale": locale, "keyboard_layout": logged_layout}
    meta, _ = read_meta(json_bytes({"timestamp": "2025-03-04T15:18:16Z"} | fields))
    assert meta.usual_layout == layout


def test_an_unknown_status_is_worth_a_warning():
    _, problems = read_meta(f'{{{STAMP}, "status": "paused"}}'.encode())
    assert [(p.code, p.severity) for p in problems] == [("unknown_status", Severity.WARNING)]


@pytest.mark.parametrize(
    ("data", "line", "field"),
    [
        (b"", 1, ""),
        (b"[]", 1, ""),
        (b"{}", 1, "timestamp"),
        (b"\xff\xfe", 1, ""),
        (b"[" * 50_000, 1, ""),
        (b'{\n"timestamp": 1741119480000}', 2, "timestamp"),
        (b'{\n"timestamp": "yesterday"}', 2, "timestamp"),
        (b'{\n"timestamp": "3000-01-01T00:00:00Z"}', 2, "timestamp"),
        (b'{\n\n"timestamp": "2025-03-04T15:18:16"}', 3, "timestamp"),
        (b"{" + STAMP.encode() + b',\n"quest": "hunter2"}', 2, "quest"),
        (b"{" + STAMP.encode() + b',\n"quest": {\n"objectives": [{}]}}', 3, "quest.objectives[0]"),
        (b"{" + STAMP.encode() + b',\n"duration_seconds": "hunter2"}', 2, "duration_seconds"),
        (b"{" + STAMP.encode() + b',\n"primary_monitor":\n{"width": 0, "height": 1}}', 3, "width"),
        (b"{" + STAMP.encode() + b', // fine\n"title": }', 2, ""),
        (b'{"title": "open // not a comment\n}', 1, ""),
    ],
)
def test_unusable_metadata_names_line_and_field(data, line, field):
    with pytest.raises(DemonstrationError) as caught:
        read_meta(data)
    problem = caught.value.problems[0]
    assert (problem.file, problem.line) == ("meta.json", line)
    assert field in problem.message
    assert "hunter2" not in str(caught.value)


@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,/1 \n\\', max_size=30).map(str.encode))
def test_no_bytes_crash_the_reader(data):
    with pytest.raises(DemonstrationError):
        read_meta(data)


def node(**changes):
    return {
        "bbox": {"x": 722, "y": 335, "width": 800, "height": 600},
        "children": [],
        "description": "",
        "name": "",
        "role": "Pane",
        "states": {"enabled": True, "keyboard_focusable": False, "visible": True},
        "value": "",
    } | changes


def scan(**changes):
    queries = {"cursor": {"element": node(), "position": {"x": 1270, "y": 688}}}
    data = {"duration": 5645, "focused_element": node(), "queries": queries, "tree": [node()]}
    return {"event": "axtree", "data": data | changes, "time": 1741119497902}


def test_a_documented_scan_has_no_fault():
    assert not scan_fault(scan())


@pytest.mark.parametrize(
    ("event", "place"),
    [
        (None, "event: "),
        ([], "event: "),
        ({}, "event: "),
        (scan() | {"time": "1"}, "time: "),
        (scan(hunter2=1), "data.unknown field, 7 characters: "),
        (scan(duration=True), "data.duration: "),
        (scan(tree={}), "data.tree: "),
        (scan(focused_element=node(bbox=None)), "data.focused_element.bbox: "),
        (scan(tree=[node(children=[node(), node(role=3)])]), "data.tree[0] node 2.role: "),
        (scan(tree=[node(), "x"]), "data.tree[1]: "),
        (scan(queries={"hunter2": {"element": 1, "position": {"x": 1}}}), "data.queries[0].posi"),
        (scan(queries={"hunter2": {"element": 1, "position": {"x": 1, "y": 1}}}), "data.queries"),
    ],
)
def test_deviations_are_named_with_their_field_and_never_quote(event, place):
    fault = scan_fault(event)
    assert fault.startswith(place)
    assert "hunter2" not in fault


def test_a_scan_of_any_depth_is_checked_to_the_bottom():
    tree = node(value=7)
    for _ in range(3000):
        tree = node(children=[tree])
    assert scan_fault(scan(tree=[tree])).split(":")[0] == "data.tree[0] node 3000.value"
