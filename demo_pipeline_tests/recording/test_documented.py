"""Tests that the examples of the Training Gym format are read completely and without a warning.

The examples are copied word for word. Their `/* ... */` and `//` comments stand for content that
the documentation leaves out. An object or array with only a comment is read as empty. The example
of meta.json is read with its comments.
"""

import re
import shutil
from pathlib import Path

import pytest

from demo_pipeline.actions.action_tables import read_actions
from demo_pipeline.actions.build_actions import build_actions, check_event_accounting
from demo_pipeline.recording.events import build_events, read_events, read_scans
from demo_pipeline.recording.manifest import build_manifest, read_manifest
from demo_pipeline.settings import ActionSettings

SAMPLE = Path(__file__).resolve().parents[2] / "data" / "samples" / "20260105_090000"

EVENT = """\
{
  "event": "eventType",
  "data": {
    // Event-specific properties
  },
  "time": 1234567890
}
"""

AXTREE = """\
{
  "event": "axtree",
  "data": {
    "duration": 5645,
    "focused_element": {
      "bbox": {
        "height": 600,
        "width": 800,
        "x": 722,
        "y": 335
      },
      "children": [],
      "description": "",
      "name": "",
      "role": "Pane",
      "states": {
        "enabled": true,
        "keyboard_focusable": false,
        "visible": true
      },
      "value": ""
    },
    "queries": {
      "cursor": {
        "element": { /* Element details */ },
        "position": { "x": 1270, "y": 688 }
      },
      "random1": {
        "element": { /* Element details */ },
        "position": { "x": 378, "y": 400 }
      },
      "random2": {
        "element": { /* Element details */ },
        "position": { "x": 1985, "y": 813 }
      }
    },
    "tree": [
      /* Array of UI elements and their properties */
    ]
  },
  "time": 1741119497902
}
"""

MOUSEMOVE = """\
{
  "event": "mousemove",
  "data": {
    "x": 123,
    "y": 456
  },
  "time": 1234567890
}
"""

MOUSEDOWN = """\
{
  "event": "mousedown",
  "data": {
    "x": 123,
    "y": 456,
    "button": "Left"
  },
  "time": 1234567890
}
"""

MOUSEUP = """\
{
  "event": "mouseup",
  "data": {
    "x": 123,
    "y": 456,
    "button": "Left"
  },
  "time": 1234567890
}
"""

MOUSEWHEEL = """\
{
  "event": "mousewheel",
  "data": {
    "delta": -120
  },
  "time": 1234567890
}
"""

KEYDOWN = """\
{
  "event": "keydown",
  "data": {
    "key": "A"
  },
  "time": 1234567890
}
"""

KEYUP = """\
{
  "event": "keyup",
  "data": {
    "key": "A"
  },
  "time": 1234567890
}
"""

META = """\
{
  "id": "20250304_151816",                        // Unique identifier for the demonstration (timestamp format)
  "timestamp": "2025-03-04T15:18:16.813394600-05:00", // When the demonstration was recorded (ISO 8601 format)
  "duration_seconds": 21,                         // Total length of the demonstration in seconds
  "status": "completed",                          // Current status of the demonstration (completed, in-progress, aborted)
  "title": "Find Kendrick Lamar concert tickets", // Title of the demonstration task
  "description": "",                              // Optional additional description

  "platform": "windows",                          // Operating system used (windows, macos, linux)
  "arch": "x86_64",                               // System architecture
  "version": "10.0.26100",                        // OS version
  "locale": "en-GB",                              // System language/region setting
  "primary_monitor": {                            // Information about the main display
    "width": 3440,                                // Screen width in pixels
    "height": 1440                                // Screen height in pixels
  },

  "reason": "fail",                               // Why the demonstration ended (fail = task failed, done = task completed)
  "quest": {                                      // Information about the assigned task
    "title": "Find Kendrick Lamar concert tickets", // Task title
    "app": "StubHub",                             // Primary application to be used
    "icon_url": "https://s2.googleusercontent.com/s2/favicons?domain=stubhub.com&sz=64", // Icon for the application
    "objectives": [                               // Step-by-step objectives for the task
      "Open <app>StubHub</app> website in your browser",
      "Search for Kendrick Lamar concert in Inglewood",
      "Select quantity of tickets and apply price filter",
      "Review available options before purchase"
    ],
    "content": "Hi! I need to find 4 tickets to the Kendrick Lamar concert in Inglewood, and I'm trying to keep it under $500. Can you assist me with using StubHub?", // Task instructions in natural language
    "pool_id": "67af7cf3a903635118192a5d",        // Identifier for the task pool
    "reward": {                                   // Reward information
      "time": 1741119480000,                      // Timestamp when reward was calculated
      "max_reward": 7                             // Maximum possible reward for completing this task (in $VIRAL)
    }
  }
}
"""  # noqa: E501

EXAMPLES = (EVENT, AXTREE, MOUSEMOVE, MOUSEDOWN, MOUSEUP, MOUSEWHEEL, KEYDOWN, KEYUP)


def one_line(example: str) -> bytes:
    """Returns an example on a single line and without comments, as a recorder writes it."""
    bare = re.sub(r"/\*.*?\*/|//[^\n]*", "", example)
    return bare.replace("\n", " ").encode()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "input_log.jsonl"
    path.write_bytes(b"\n".join(map(one_line, EXAMPLES)) + b"\n")
    return path


def test_every_example_is_an_event(log):
    summary = build_events(log, log.parent)
    assert (summary["events"], summary["rejected_lines"]) == (len(EXAMPLES), 0)
    rows = read_events(log.parent).to_pylist()
    assert [row["event"] for row in rows] == [
        "eventType",
        "axtree",
        "mousemove",
        "mousedown",
        "mouseup",
        "mousewheel",
        "keydown",
        "keyup",
    ]
    assert [(row["x"], row["y"], row["button"]) for row in rows[2:5]] == [
        (123, 456, None),
        (123, 456, "Left"),
        (123, 456, "Left"),
    ]
    assert (rows[5]["delta"], rows[6]["key"], rows[7]["key"]) == (-120, "A", "A")
    assert {row["time_ms"] for row in rows} == {1234567890, 1741119497902}
    [scan] = read_scans(log.parent)
    assert (scan["event_index"], scan["time_ms"], scan["duration_ms"]) == (2, 1741119497902, 5645)


def test_the_examples_give_the_documented_actions(log):
    build_events(log, log.parent)
    summary = build_actions(log.parent, log.parent, "windows", ActionSettings())
    click, scroll, text = read_actions(log.parent)
    assert (click.action_type, click.x, click.y, click.button) == ("click", 123, 456, "left")
    assert (scroll.direction, scroll.amount, scroll.x) == ("up", 1, 123)
    assert (text.action_type, text.text) == ("type", "a")
    assert not any(action.flags for action in (click, scroll, text))
    assert summary["ledger"] == {"action": 5, "other": 1, "pointer_travel": 1, "tree_scan": 1}
    assert (summary["copy_factors"], summary["unknown_keys"]) == ({}, [])
    assert check_event_accounting(log.parent, log.parent) == []


def test_the_metadata_is_read_with_its_comments(tmp_path):
    upload = Path(shutil.copytree(SAMPLE, tmp_path / "upload"))
    out = tmp_path / "out"
    out.mkdir()
    (upload / "meta.json").write_text(META)
    build_manifest(upload, "20250304_151816", out)
    manifest = read_manifest(out)
    assert [warning["code"] for warning in manifest.warnings] == ["json_comments"]
    meta = manifest.parsed_meta()
    assert meta.timestamp_raw == "2025-03-04T15:18:16.813394600-05:00"
    assert (meta.platform, meta.status, meta.reason) == ("windows", "completed", "fail")
    assert meta.quest is not None
    assert meta.quest.icon_url.endswith("favicons?domain=stubhub.com&sz=64")
    assert meta.quest.objectives[0] == "Open <app>StubHub</app> website in your browser"
    assert "under $500." in meta.quest.content


def test_the_metadata_without_comments_is_read_without_a_warning(tmp_path):
    upload = Path(shutil.copytree(SAMPLE, tmp_path / "upload"))
    out = tmp_path / "out"
    out.mkdir()
    (upload / "meta.json").write_text(re.sub(r" // .*", "", META))
    summary = build_manifest(upload, "20250304_151816", out)
    assert summary["warnings"] == []
