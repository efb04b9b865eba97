"""Damages to the outputs of the stages of a demonstration, by stage: name → damage."""

from collections.abc import Mapping
from typing import Any

from demo_pipeline_tests.breakages.damages import (
    Damage,
    add,
    as_png,
    black,
    cell,
    cut,
    document,
    drop,
    emptied,
    exchange,
    exchange_files,
    line,
    lines,
    null,
    put,
    remove,
    repainted,
    repeat,
    replaced_by,
    retyped,
    smaller,
    spot,
    swap,
    whole_column,
    without,
    without_column,
)


def of_type(*kinds: str) -> Any:
    """The first row of one of these actions."""
    return lambda row: row["action_type"] in kinds


def with_picture(row: Any) -> bool:
    return row["file"] is not None


def with_target(row: Any) -> bool:
    return row["target_x"] is not None


def exchanged_tiles(pixels: Any) -> Any:
    """A sheet whose first two tiles are in each other's place."""
    width = pixels.shape[1] // 4
    one, two = pixels[80:260, :width].copy(), pixels[80:260, width : 2 * width].copy()
    pixels[80:260, :width], pixels[80:260, width : 2 * width] = two, one
    return pixels


MANIFEST = "manifest.json"
EVENTS, REJECTED, SCANS = "events.parquet", "rejected.parquet", "trees.parquet"
ACTIONS, LEDGER = "actions.parquet", "ledger.parquet"
FRAMES, PICTURES, EVIDENCE = "frames.parquet", "pictures.parquet", "evidence.json"
TREES = "trees.parquet"
PROVENANCE, HIDDEN = "provenance.parquet", "hidden_actions.parquet"
TASK, RESULT, CLICK = "task.json", "result.json", "steps/000/action.json"

RAW_RECORDINGS: Mapping[str, Damage] = {
    "another size": put(MANIFEST, "files.0.size", lambda size: size + 1),
    "another hash": put(MANIFEST, "files.1.sha256", "0" * 64),
    "another film's hash": put(MANIFEST, "files.2.sha256", "f" * 64),
    "two files": without(MANIFEST, "files.2"),
    "a file's other name": put(MANIFEST, "files.0.name", "log.jsonl"),
    "no fingerprint": without(MANIFEST, "fingerprint"),
    "another fingerprint": put(MANIFEST, "fingerprint", "0" * 64),
    "another id": put(MANIFEST, "id", "somebody"),
    "another folder's name": put(MANIFEST, "name", "somebody"),
    "another platform": put(MANIFEST, "meta.platform", "linux"),
    "another status": put(MANIFEST, "meta.status", "rotten"),
    "another quest": put(MANIFEST, "meta.quest.content", "Do something else."),
    "no quest": put(MANIFEST, "meta.quest", None),
    "frames below zero": put(MANIFEST, "video.frames", -1),
    "no width": put(MANIFEST, "video.width", 0),
    "a film that ends before it begins": put(MANIFEST, "video.last_pts_s", -1.0),
    "half the width": put(MANIFEST, "video.width", lambda width: width // 2),
    "half the frames": put(MANIFEST, "video.frames", lambda frames: frames // 2),
    "another rate": put(MANIFEST, "video.mean_fps", 1000.0),
    "a quarter turn too much": put(MANIFEST, "video.rotation", 45),
    "cut off": cut(MANIFEST),
    "gone": remove(MANIFEST),
    "a file too many": add("notes.txt"),
}

EVENTS_TABLES: Mapping[str, Damage] = {
    "a row less": drop(EVENTS, 5),
    "a row twice": repeat(EVENTS, 5),
    "rows out of order": swap(EVENTS, 5, 9),
    "line number 0": cell(EVENTS, "event_index", 0, 3),
    "another offset": cell(EVENTS, "byte_offset", lambda offset: offset + 1, 7),
    "a length below zero": cell(EVENTS, "byte_length", -1, 7),
    "another length": cell(EVENTS, "byte_length", lambda length: length + 5, 7),
    "a time before 1970": cell(EVENTS, "time_ms", -5, 7),
    "another time": cell(EVENTS, "time_ms", lambda time: time + 90_000_000, 7),
    "another place": cell(EVENTS, "x", 5.5, lambda row: row["event"] == "mousemove"),
    "a button without a press": cell(
        EVENTS, "button", "banana", lambda row: row["event"] == "mousemove"
    ),
    "another event": cell(EVENTS, "event", "mousedown", lambda row: row["event"] == "mousemove"),
    "null as a time": null(EVENTS, "time_ms", 3),
    "a column less": without_column(EVENTS, "delta"),
    "offsets as text": retyped(EVENTS, "byte_offset"),
    "a rejected line less": drop(REJECTED),
    "a rejected line's other number": cell(REJECTED, "line", 3),
    "an unknown reason": cell(REJECTED, "code", "because"),
    "no message": cell(REJECTED, "message", ""),
    "a scan less": drop(SCANS),
    "a scan's other line": cell(SCANS, "event_index", lambda line: line + 1),
    "a scan that took less than no time": cell(SCANS, "duration_ms", -1),
    "a table cut off": cut(SCANS),
    "a table gone": remove(REJECTED),
    "a file too many": add("notes.txt"),
}

ACTIONS_TABLES: Mapping[str, Damage] = {
    "tap": cell(ACTIONS, "action_type", "tap", of_type("click")),
    "banana": cell(ACTIONS, "button", "banana", of_type("click")),
    "sideways": cell(ACTIONS, "direction", "sideways", of_type("scroll")),
    "seven clicks": cell(ACTIONS, "clicks", 7, of_type("click")),
    "no notch": cell(ACTIONS, "amount", 0, of_type("scroll")),
    "no press": cell(ACTIONS, "presses", 0, of_type("hotkey")),
    "a key nobody has": cell(ACTIONS, "keys", ["hyper"], of_type("hotkey")),
    "a hotkey without keys": cell(ACTIONS, "keys", [], of_type("hotkey")),
    "a modifier nobody has": cell(ACTIONS, "modifiers", ["hyper"], of_type("click")),
    "typing without text": cell(ACTIONS, "text", None, of_type("type")),
    "a click with text": cell(ACTIONS, "text", "secret", of_type("click")),
    "a pause below zero": cell(ACTIONS, "seconds", -2.0, of_type("pause")),
    "a unit nobody has": cell(ACTIONS, "wheel_unit", "furlong", of_type("scroll")),
    "an unknown method": cell(ACTIONS, "wheel_method", "guess", of_type("scroll")),
    "a drag without an end": cell(ACTIONS, "end_x", None, of_type("drag")),
    "an end before its begin": cell(ACTIONS, "end_ms", 0, of_type("click")),
    "an unknown flag": cell(ACTIONS, "flags", ["odd"], of_type("click")),
    "actions out of order": swap(ACTIONS, 2, 3),
    "an action less": drop(ACTIONS, 3),
    "an action twice": repeat(ACTIONS, 3),
    "another action's events": exchange(ACTIONS, "events", 2, 3),
    "a wrong first event": cell(ACTIONS, "first_event", 1, of_type("drag")),
    "another place": cell(ACTIONS, "x", lambda x: x + 100, of_type("click")),
    "another begin": cell(ACTIONS, "press_ms", lambda time: time + 1, of_type("hotkey")),
    "null as a time": null(ACTIONS, "press_ms", 3),
    "an unknown bucket": cell(LEDGER, "bucket", "bin"),
    "a line less": drop(LEDGER, 4),
    "an action that is not there": cell(
        LEDGER, "action_index", 999, lambda row: row["bucket"] == "action"
    ),
    "travel as an action": cell(
        LEDGER, "bucket", "action", lambda row: row["bucket"] == "pointer_travel"
    ),
    "an unknown reason": cell(LEDGER, "reason", "because", lambda row: row["reason"]),
    "a table cut off": cut(LEDGER),
    "a file too many": add("actions.json"),
}

SCREENSHOTS: Mapping[str, Damage] = {
    "half a picture": cut("002.png"),
    "a picture without its end": cut("003.png", 0.99),
    "a black picture": black("002.png"),
    "a black last picture": black("final.png"),
    "a spot": spot("004.png"),
    "a smaller picture": smaller("002.png"),
    "two pictures exchanged": exchange_files("002.png", "006.png"),
    "a picture gone": remove("003.png"),
    "a picture too many": add("999.png"),
    "no last picture": remove("final.png"),
    "a row less": drop(FRAMES, 2),
    "rows out of order": swap(FRAMES, 2, 3),
    "an unknown reason": cell(FRAMES, "reason_code", "luck", with_picture),
    "another action's picture": exchange(FRAMES, "file", 2, 3),
    "a picture that is not there": cell(FRAMES, "file", "777.png", with_picture),
    "a picture that nothing names": cell(FRAMES, "file", None, with_picture),
    "a frame below zero": cell(FRAMES, "frame", -1, with_picture),
    "another frame": cell(FRAMES, "frame", lambda frame: frame + 40, with_picture),
    "a picture without a time": cell(FRAMES, "pts", None, with_picture),
    "another time": cell(FRAMES, "pts", lambda pts: pts + 5, with_picture),
    "another lead": cell(FRAMES, "lead_ms", lambda lead: lead + 900, with_picture),
    "an unavoidable leak that is none": cell(FRAMES, "unavoidable", True, with_picture),
    "null as a leak": null(FRAMES, "leak", 2),
    "a thumbnail less": drop(PICTURES),
    "thumbnails exchanged": exchange(PICTURES, "jpeg"),
    "half a thumbnail": cell(PICTURES, "jpeg", lambda jpeg: jpeg[: len(jpeg) // 2]),
    "a clock by magic": put(EVIDENCE, "clock.method", "magic"),
    "a clock surer than sure": put(EVIDENCE, "clock.uncertainty_ms", -1.0),
    "no canvas": put(EVIDENCE, "canvas.width", 0),
    "another scale": put(EVIDENCE, "canvas.scale", lambda scale: scale * 2),
    "an action that is not there": put(
        EVIDENCE,
        "waits",
        lambda waits: [*waits, {"action_index": 999, "seconds": 1, "settled_s": 1}],
    ),
    "evidence cut off": cut(EVIDENCE),
    "a file too many": add("notes.txt"),
}

UI_TREES: Mapping[str, Damage] = {
    "rotten": cell(TREES, "freshness", "rotten"),
    "an unknown agreement": cell(TREES, "tree_agreement", "perhaps"),
    "an unknown method": cell(TREES, "target_method", "magic", with_target),
    "an unknown role": cell(TREES, "target_role", "wizard", with_target),
    "another name": cell(TREES, "target_name", "Elsewhere", with_target),
    "another box": cell(TREES, "target_x", lambda x: x + 1, with_target),
    "a target that is not there": cell(TREES, "target_id", "node_9999", with_target),
    "a target without a role": cell(TREES, "target_role", None, with_target),
    "an age below its scan": cell(TREES, "tree_age_ms", -99_999, with_target),
    "another age": cell(TREES, "tree_age_ms", lambda age: age + 700, with_target),
    "another scan": cell(TREES, "scan_event", lambda line: line + 1, with_target),
    "a scan's other time": cell(TREES, "scan_ms", lambda time: time - 500, with_target),
    "a scan that took less than no time": cell(TREES, "duration_ms", -1, with_target),
    "fewer nodes": cell(TREES, "nodes", 1, with_target),
    "roles below zero": cell(TREES, "unknown_roles", -1, with_target),
    "a row less": drop(TREES, 2),
    "rows out of order": swap(TREES, 2, 3),
    "another action's tree": exchange(TREES, "file", 2, 6),
    "two trees exchanged": exchange_files("002.json", "008.json"),
    "a tree gone": remove("003.json"),
    "a tree cut off": cut("002.json"),
    "a tree without a root": without("002.json", "root"),
    "an unknown role in a tree": put("002.json", "root.children.0.role", "wizard"),
    "a node id twice": put("002.json", "root.children.0.id", "node_0"),
    "another name in a tree": put("002.json", "root.children.0.name", "Elsewhere"),
    "a tree of another day": put("002.json", "timestamp", "1999-01-01T00:00:00+00:00"),
    "no children": put("002.json", "root.children", []),
    "a file too many": add("999.json", b"{}"),
}

TRAJECTORIES: Mapping[str, Damage] = {
    "another task's instruction": put(TASK, "instruction", "Please do the second task."),
    "another task": put(TASK, "task_id", "notes_the_second_task"),
    "another application": put(TASK, "application", "gimp"),
    "impossible": put(TASK, "difficulty", "impossible"),
    "easy": put(TASK, "difficulty", "easy"),
    "more steps expected": put(TASK, "expected_steps", lambda steps: steps + 1),
    "a benchmark's task": put(TASK, "osworld_task_id", "bb5e4c0d"),
    "success flipped": put(RESULT, "success", lambda success: not success),
    "success flipped, with a reason": document(
        RESULT, lambda result: result | {"success": False, "error_message": "reason gave up"}
    ),
    "a reason though it succeeded": put(RESULT, "error_message", "reason gave up"),
    "another time taken": put(RESULT, "completion_time_ms", lambda time: time * 2),
    "other total steps": put(RESULT, "total_steps", 1),
    "another person": put(RESULT, "model_info.name", "gpt"),
    "tap": put(CLICK, "action_type", "tap"),
    "banana": put(CLICK, "parameters.button", "banana"),
    "another button": put(CLICK, "parameters.button", "right"),
    "another place": put(CLICK, "parameters.x", lambda x: x + 1),
    "a place off the screen": put(CLICK, "parameters.x", 5000),
    "another target": put(CLICK, "target_element.id", "node_1"),
    "no target": put(CLICK, "target_element", None),
    "other words": put(CLICK, "reasoning", "Click anywhere."),
    "other text": put("steps/002/action.json", "parameters.text", "other"),
    "black": black("steps/001/screenshot.png"),
    "pictures exchanged": exchange_files("steps/001/screenshot.png", "steps/007/screenshot.png"),
    "trees exchanged": exchange_files("steps/001/ui_tree.json", "steps/007/ui_tree.json"),
    "a black last picture": black("final_screenshot.png"),
    "a tree changed": put("steps/001/ui_tree.json", "root.children.0.name", "Elsewhere"),
    "a provenance row less": drop(PROVENANCE, 3),
    "a provenance row twice": repeat(PROVENANCE, 3),
    "provenance rows exchanged": swap(PROVENANCE, 2, 3),
    "rotten": cell(PROVENANCE, "freshness", "rotten"),
    "an unknown reason": cell(PROVENANCE, "reason_code", "luck"),
    "an avoided leak": cell(PROVENANCE, "leak", True),
    "another lead": cell(PROVENANCE, "lead_ms", 1.5),
    "another split group": whole_column(PROVENANCE, "split_group", "notes_the_second_task"),
    "another platform": cell(PROVENANCE, "platform", "amiga"),
    "another person's trajectory": cell(PROVENANCE, "trajectory_id", "first"),
    "nothing hidden": cell(PROVENANCE, "hidden_before", 0, lambda row: row["hidden_before"]),
    "complete": whole_column(PROVENANCE, "complete", True),
    "another clock": cell(PROVENANCE, "clock_method", "magic"),
    "a hidden action less": drop(HIDDEN),
    "a hidden action by an unknown reason": cell(HIDDEN, "reason", "shy"),
    "a hidden action elsewhere": cell(HIDDEN, "before_step", 99),
    "a table cut off": cut(PROVENANCE),
    "a step gone": remove("steps/010/action.json"),
    "a file too many": add("notes.txt"),
    "a file too many in a step": add("steps/000/notes.txt"),
}

CONTACT_SHEETS: Mapping[str, Damage] = {
    "half a sheet": cut("sheet.jpg"),
    "a sheet without its end": cut("sheet.jpg", 0.98),
    "a black sheet": black("sheet.jpg"),
    "a smaller sheet": smaller("sheet.jpg"),
    "a sheet upside down": repainted("sheet.jpg", lambda pixels: pixels[::-1]),
    "two tiles exchanged": repainted("sheet.jpg", exchanged_tiles),
    "a sheet without captions": repainted("sheet.jpg", lambda pixels: pixels // 32 * 32),
    "no sheet": remove("sheet.jpg"),
    "an empty sheet": cut("sheet.jpg", 0.0),
    "a sheet that is text": replaced_by("sheet.jpg", b"no picture"),
    "a sheet that is a PNG": as_png("sheet.jpg"),
    "a second sheet": add("sheet_2.jpg"),
    "a file too many": add("notes.txt"),
}

_HEAD, _SFT, _CHATS, _CUDAG = "trajectory.jsonl", "sft.jsonl", "messages.jsonl", "cudag.jsonl"
RECORDS: Mapping[str, Damage] = {
    "another instruction": line(_HEAD, "instruction", "Do something else."),
    "another task": line(_HEAD, "task_id", "somebody"),
    "success flipped": line(_HEAD, "success", lambda success: not success),
    "another group": line(_HEAD, "split_groups", ["somebody"]),
    "a hidden action less": line(_HEAD, "hidden.actions", lambda actions: actions[1:]),
    "a step less": lines(_HEAD, lambda rows: [*rows[:2], *rows[3:]]),
    "another lead": line(_HEAD, "lead_ms", 1.5, 2),
    "a leak": line(_HEAD, "leak", lambda leak: not leak, 2),
    "no head": lines(_HEAD, lambda rows: rows[1:]),
    "a sample less": lines(_SFT, lambda rows: rows[:-1]),
    "samples exchanged": lines(_SFT, lambda rows: [*rows[:1], rows[2], rows[1], *rows[3:]]),
    "a sample twice": lines(_SFT, lambda rows: [*rows, rows[-1]]),
    "another question": line(_SFT, "question", "0" * 64, 1),
    "another row": line(_SFT, "parts.row.action_type", "tap", 1),
    "another line": line(_SFT, "parts.line", lambda text: text.replace("click", "drag"), 1),
    "another id": line(_SFT, "id", "somebody/000", 1),
    "a picture less": line(_SFT, "files", {}, 1),
    "another count of what is left out": line(_SFT, "excluded", {"off_screen": 99}),
    "samples cut off": cut(_SFT),
    "another chat": line(_CHATS, "parts.chat.messages.2.content", "Action: nothing", 1),
    "another completion": line(_CHATS, "parts.pair.completion.0.role", "user", 1),
    "chats gone": remove(_CHATS),
    "another test": line(_CUDAG, "parts.test", "{}", 1),
    "other counts": line(_CUDAG, "counts.places", 7, 1),
    "other markers": line(_CUDAG, "counts.markers of prompts", 5),
    "an image of another file": line(_CHATS, "files", {"trajectories/x.png": "y.png"}, 1),
    "another row of a transition": line("transitions.jsonl", "parts.row.waited_seconds", 9.5, 1),
    "another label": line("step_labels.jsonl", "parts.outcome.labels", [False], 1),
    "another box": line("grounding.jsonl", "parts.row.box", [0, 0, 1, 1], 1),
    "another call of point": line("grounding.jsonl", "parts.point.messages", "[]", 1),
    "another picture of a box": line("grounding.jsonl", "parts.bbox.images", ["no.png"], 1),
    "another code": line("agentnet.jsonl", "parts.code", "{}", 1),
    "another document": line("atif.jsonl", "parts.document", "{}", 1),
    "other turns": line("cua_lite.jsonl", "parts.row.messages", "[]", 1),
    "a file too many": add("notes.txt"),
    "no JSON": replaced_by(_CUDAG, b"{]\n"),
}

_DOUBT = "steps.parquet"
TRIAGE: Mapping[str, Damage] = {
    "a step less": drop(_DOUBT),
    "a step twice": repeat(_DOUBT),
    "steps exchanged": swap(_DOUBT),
    "another action": cell(_DOUBT, "action_type", "tap"),
    "a signal more": cell(_DOUBT, "undone", True),
    "a signal less": cell(_DOUBT, "no_target", lambda said: not said),
    "another doubt": cell(_DOUBT, "doubt", 9.5),
    "no column of leaks": without_column(_DOUBT, "leak"),
    "another demonstration": cell("demonstration.parquet", "trajectory_id", "somebody"),
    "other doubt of the whole": cell("demonstration.parquet", "doubt", 0.123),
    "success flipped": cell("demonstration.parquet", "success", lambda success: not success),
    "not flagged": cell("demonstration.parquet", "flagged", lambda flagged: not flagged),
    "another task": cell("demonstration.parquet", "task_group", "somebody"),
    "no row": emptied("demonstration.parquet"),
    "another place in the queue": put("demonstration.json", "doubt", 7.5),
    "the queue's file gone": remove("demonstration.json"),
    "a file too many": add("notes.txt"),
}

_FOUND, _STATE = "redactions.parquet", "redactions.json"
REDACTIONS: Mapping[str, Damage] = {
    "half a table": cut(_FOUND),
    "an empty table": cut(_FOUND, 0.0),
    "no table": remove(_FOUND),
    "a table that is text": replaced_by(_FOUND, b"no table"),
    "no column of kinds": without_column(_FOUND, "kind"),
    "kept back": put(_STATE, "withheld", "private: email"),
    "another policy": put(_STATE, "policy", "off"),
    "pictures that nobody read": put(_STATE, "pictures_read", 3),
    "no detectors": put(_STATE, "detectors", {}),
    "no state": remove(_STATE),
    "half a state": cut(_STATE),
    "a file too many": add("notes.txt"),
}

_SAID = "annotations.parquet"
ANNOTATIONS: Mapping[str, Damage] = {
    "an annotation less": drop(_SAID),
    "an annotation twice": repeat(_SAID),
    "annotations exchanged": swap(_SAID),
    "another kind": cell(_SAID, "kind", "mood"),
    "another value": cell(_SAID, "value", "5"),
    "another source": cell(_SAID, "source", "somebody"),
    "another author": cell(_SAID, "author", "bob"),
    "another step": cell(_SAID, "step_index", 3, lambda row: row["step_index"] == 1),
    "nothing counts": cell(_SAID, "effective", False, lambda row: row["effective"]),
    "a stale one counts": cell(_SAID, "effective", True, lambda row: row["stale"]),
    "nothing is stale": whole_column(_SAID, "stale", False),
    "nobody disagrees": whole_column(_SAID, "disagrees", False),
    "another prompt": cell(_SAID, "prompt", "p/2", lambda row: row["prompt"]),
    "another hash of what was judged": cell(_SAID, "judged", "1" * 64),
    "another time": cell(_SAID, "time", "2020-01-01T00:00:00Z"),
    "another demonstration": cell(_SAID, "trajectory_id", "somebody"),
    "no column of sources": without_column(_SAID, "source"),
    "no row": emptied(_SAID),
    "the table gone": remove(_SAID),
    "a file too many": add("notes.txt"),
}
