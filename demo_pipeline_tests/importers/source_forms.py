"""Writes a recording in the formats of other tools, so that tests can import it again.

Each writer takes an upload folder of the simulator (key names of Windows, a position for every
press) and writes the files that the tool would have written. The formats are taken from the source
code of the tools.
"""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import av
import msgspec
from mcap.writer import Writer

from demo_pipeline.importers.source_keys import _SYMBOLS, _VIRTUAL_KEYS, virtual_key

BOOT_S = 30_000.0  # start of the recording on a monotonic clock, seconds
# Size of the video, and the box of its window, which has a border of six pixels.
SHAPE_AND_WINDOW = ((640, 360), [94, 50, 746, 416])
MOVED = 100, 50  # position of the video on the desktop, pixels
_CODES = {virtual_key(code): code for code in range(256)} | {v: k for k, v in _VIRTUAL_KEYS.items()}
_CHARS = {windows: char for char, (windows, _) in reversed(_SYMBOLS.items())}
_RDEV = dict(_SYMBOLS.values())
_PYNPUT = {"LeftCtrl": "ctrl_l", "Shift": "shift", "Return": "enter", "Space": "space"}


def log_of(folder: Path) -> list[dict[str, Any]]:
    """Returns the lines of input_log.jsonl."""
    text = (folder / "input_log.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def began(folder: Path) -> float:
    """Returns the time of the first line, epoch milliseconds."""
    return float(log_of(folder)[0]["time"])


def _pointer_events(folder: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yields (milliseconds, kind, fields) of each event.

    Pointer events have the names of pynput. Keys have their logged names.
    """
    at = {"x": 0, "y": 0}
    for line in log_of(folder):
        data = line["data"]
        time = line["time"]
        if line["event"] == "mousemove":
            at = {"x": data["x"], "y": data["y"]}
            yield time, "move", at
        elif line["event"] in {"mousedown", "mouseup"}:
            button = {"button": data["button"].lower(), "pressed": line["event"] == "mousedown"}
            yield time, "click", {"x": data["x"], "y": data["y"]} | button
        elif line["event"] == "mousewheel":
            yield time, "scroll", at | {"dx": 0, "dy": -data["delta"] / 120}
        elif line["event"] in {"keydown", "keyup"}:
            kind = "press" if line["event"] == "keydown" else "release"
            yield time, kind, {"key": data["key"]}


def video_times(video: Path) -> list[float]:
    """Returns the times of the frames, seconds."""
    with av.open(str(video)) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.pts is not None]
        return sorted(float(packet.pts * packet.time_base) for packet in packets)


def _as_matroska(video: Path, out: Path, *, late: bool) -> None:
    """Writes the video as Matroska.

    If `late` is true, each frame has the time of the frame before it.
    """
    with av.open(str(video)) as source, av.open(str(out), "w") as target:
        stream = source.streams.video[0]
        copied = target.add_stream_from_template(stream)
        before = 0
        for packet in source.demux(stream):
            if packet.dts is None:
                continue
            taken = packet.pts
            if late:
                packet.pts = packet.dts = before
            before = max(taken, before + packet.duration // 2)
            packet.stream = copied
            target.mux(packet)


def owamcap(
    folder: Path,
    out: Path,
    name: str = "clip",
    *,
    window: bool = True,
    late: bool = False,
    corner: tuple[int, int] = (0, 0),
) -> Path:
    """Writes NAME.mcap and NAME.mkv of a window at `MOVED`, or of a display.

    If `late` is true, each frame has the time of the frame before it.
    """
    out.mkdir(parents=True, exist_ok=True)
    video = out / f"{name}.mkv"
    _as_matroska(folder / "recording.mp4", video, late=late)
    left, top = MOVED if window else corner
    zero = began(folder)
    messages: list[tuple[float, str, dict[str, Any]]] = []
    if window:
        messages.append((zero, "window", {"title": "Form", "rect": SHAPE_AND_WINDOW[1], "hWnd": 1}))
    taken = video_times(folder / "recording.mp4")
    for seconds, filmed in zip(taken, video_times(video), strict=True):
        utc = zero + seconds * 1000
        reference = {"uri": video.name, "pts_ns": round(filmed * 1e9)}
        shape = list(SHAPE_AND_WINDOW[0])
        frame = {"utc_ns": round(utc * 1e6), "source_shape": shape, "media_ref": reference}
        messages.append((utc, "screen", frame))
    for time, kind, data in _pointer_events(folder):
        event: dict[str, Any] = {"event_type": kind}
        if "key" in data:
            messages.append((time, "keyboard", event | {"vk": _CODES[data["key"]]}))
        else:
            place = {"x": round(data["x"]) + left, "y": round(data["y"]) + top}
            messages.append((time, "mouse", event | data | place))
    with (out / f"{name}.mcap").open("wb") as stream:
        writer = Writer(stream, chunk_size=4096)
        writer.start(profile="owa", library="tests")
        channels: dict[str, int] = {}
        for at, topic, value in sorted(messages, key=lambda message: message[0]):
            if topic not in channels:
                schema = writer.register_schema(f"desktop/{topic}", "jsonschema", b"{}")
                channels[topic] = writer.register_channel(topic, "json", schema)
            nanoseconds = round(at * 1e6)
            writer.add_message(
                channels[topic], nanoseconds, json.dumps(value).encode(), nanoseconds
            )
        writer.finish()
    return out / f"{name}.mcap"


def agentnet(folder: Path, out: Path) -> Path:
    """Writes a recording of AgentNet Tool with one tree."""
    out.mkdir(parents=True)
    shutil.copyfile(folder / "recording.mp4", out / "2024-11-05 18-56-31.mp4")
    zero = began(folder)
    lines = []
    for number, (time, kind, data) in enumerate(_pointer_events(folder)):
        event = {"time_stamp": BOOT_S + (time - zero) / 1000, "action": kind, "event_idx": number}
        if "key" in data:
            key = data["key"]
            char = _CHARS.get(key) or (key if len(key) == 1 else "")
            name = char.lower() if char else _PYNPUT[key]
            event |= {"name": name, "pynput_key": repr(name) if char else f"Key.{name}"}
        lines.append(event | {k: v for k, v in data.items() if k != "key"})
    _write_lines(out / "events.jsonl", lines)
    button = _node("OK", "ButtonControl", (10, 20, 110, 60))
    window = _node("Form", "WindowControl", (-8, -8, 648, 368)) | {"Children": [button]}
    _write_lines(out / "a11y.jsonl", [{"time_stamp": BOOT_S + 1, "axtree": window}])
    metadata = {
        "system": "Windows",
        "machine": "AMD64",
        "version": "10.0.19045",
        "screen_width": 640,
        "screen_height": 360,
        "start_time": "2024-11-05 18:56:31",
        "video_start_timestamp": BOOT_S,
    }
    (out / "metadata.json").write_text(json.dumps(metadata))
    (out / "task_name.json").write_text(json.dumps({"task_name": "Tick the box"}))
    return out


def presses_of_agentnet(folder: Path) -> list[float]:
    """Returns the times of the presses in a recording of AgentNet Tool, seconds."""
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [event["time_stamp"] for event in events if event.get("pressed") is True]


def element_of_agentnet(
    seconds: float, name: str, role: str, *, inside: bool = False
) -> dict[str, Any]:
    """Returns a line of element.jsonl.

    If `inside` is true, the element is in the tree that `agentnet` writes.
    """
    box = (10, 20, 110, 60) if inside else (200, 100, 220, 120)
    return {"time_stamp": seconds, "a11y_tree": _node(name, role, box)}


def write_elements_of_agentnet(folder: Path, lines: list[dict[str, Any]]) -> None:
    """Writes element.jsonl."""
    _write_lines(folder / "element.jsonl", lines)


def _node(name: str, role: str, box: tuple[int, int, int, int]) -> dict[str, Any]:
    sides = dict(zip(("left", "top", "right", "bottom"), box, strict=True))
    return {"Name": name, "ControlType": role, "BoundingRectangle": sides, "Children": []}


def _write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def openadapt(folder: Path, out: Path) -> Path:
    """Writes a recording of OpenAdapt Capture."""
    out.mkdir(parents=True)
    shutil.copyfile(folder / "recording.mp4", out / "oa_recording-1.0.mp4")
    zero = began(folder) / 1000
    columns = "name, timestamp, mouse_x, mouse_y, mouse_dx, mouse_dy, mouse_button_name, "
    columns += "mouse_pressed, key_name, key_char, disabled"
    with closing(sqlite3.connect(out / "recording.db")) as database:
        database.execute(
            "CREATE TABLE recording (id INTEGER, timestamp REAL, monitor_width INTEGER, "
            "monitor_height INTEGER, platform TEXT, task_description TEXT, video_start_time REAL, "
            "config TEXT)"
        )
        row = (1, zero, 640, 360, "win32", "Tick the box", zero, None)
        database.execute("INSERT INTO recording VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        database.execute(f"CREATE TABLE action_event ({columns})")
        for time, kind, data in _pointer_events(folder):
            key = data.get("key", "")
            char = _CHARS.get(key) or (key if len(key) == 1 else "")
            values = (kind, time / 1000, *(data.get(name) for name in ("x", "y", "dx", "dy")))
            values += (data.get("button"), data.get("pressed"))
            values += (None if char else _PYNPUT.get(key), char.lower() or None, 0)
            marks = ", ".join("?" * len(values))
            database.execute(f"INSERT INTO action_event VALUES ({marks})", values)  # noqa: S608
        database.commit()
    return out


def crowd_cast(folder: Path, out: Path, *, segments: int = 2) -> Path:
    """Writes the segments of a session. All have the same events and the same video."""
    out.mkdir(parents=True)
    zero = began(folder)
    metadata = [640, 360, 1.8, 640, 360, 1.8, 640, 360, 1.8, "", None, [], "linux", "display"]
    for number in range(segments):
        began_at = f"2026-07-07T00:0{number}:00Z"
        events: list[Any] = [[0, ["Metadata", [*metadata[:9], began_at, *metadata[10:]]]]]
        events.append([1000, ["Redacted", ["secure-field"]]])
        for time, kind, data in _pointer_events(folder):
            us = round((time - zero) * 1000)
            if "key" in data:
                key = data["key"]
                name = _RDEV.get(key) or {"LeftCtrl": "ControlLeft", "Shift": "ShiftLeft"}.get(key)
                name = name or (f"Key{key}" if len(key) == 1 else key)
                events.append([us, ["KeyPress" if kind == "press" else "KeyRelease", [0, name]]])
            elif kind == "click":
                name = "MousePress" if data["pressed"] else "MouseRelease"
                events.append([us, [name, [data["button"].title(), 0.0, 0.0]]])
            elif kind == "scroll":
                events.append([us, ["MouseScroll", [0, int(data["dy"]), 0.0, 0.0]]])
            else:
                events.append([us, ["MouseMove", [1.0, 1.0]]])
        segment = f"abc_seg{number:04d}"
        (out / f"input_{segment}.msgpack").write_bytes(msgspec.msgpack.encode(events))
        shutil.copyfile(folder / "recording.mp4", out / f"recording_{segment}.mp4")
    return out


_ALOHA_NAMES = {"LeftCtrl": "CTRL", "Shift": "SHIFT", "Return": "ENTER", "Space": "SPACE"}
_ALOHA_DISPLAY = {"x0": 0, "y0": 0, "width": 640, "height": 360, "scale_factor": 1.0}


def showui_aloha(
    folder: Path, out: Path, *, displays: dict[str, dict[str, float]] | None = None
) -> Path:
    """Writes a recording of ShowUI-Aloha, which logs the press of a drag twice."""
    out.mkdir(parents=True)
    shutil.copyfile(folder / "recording.mp4", out / "Quick-Recording-08-54-17.mp4")
    zero = began(folder)
    metadata = {
        "video_start_time": "2025-09-12 08:54:17.407",
        "screen_info": displays or {"0": _ALOHA_DISPLAY},
    }
    text = f"# Input Recording Log\n# Metadata: {json.dumps(metadata)}\n# Format: JSON per line\n\n"
    held: list[str] = []
    is_down = False
    is_drag = False
    for time, kind, data in _pointer_events(folder):
        messages = []
        place = f"at ({data['x']:.0f}, {data['y']:.0f})" if "x" in data else ""
        if kind == "click":
            side = data["button"][0].upper()
            if data["pressed"]:
                messages.append(f"{side}Click {place}")
            else:
                messages.append(f"{side}{'DragEnd' if is_drag else 'Release'} {place}")
            is_down = data["pressed"]
            is_drag = False
        elif kind == "move" and is_down:
            if not is_drag:
                messages.append(f"DragStart {place}")
            messages.append(f"DragMove {place}")
            is_drag = True
        elif kind == "scroll":
            name = "ScrollUp" if data["dy"] > 0 else "ScrollDown"
            messages += [f"{name} {place}"] * round(abs(data["dy"]))
        elif kind == "release":
            name = _ALOHA_NAMES.get(data["key"], data["key"]).upper()
            held = [key for key in held if key != name]
            messages.append(f"Key Release: {name}")
        elif kind == "press":
            name = _ALOHA_NAMES.get(data["key"], data["key"]).upper()
            if name in {"CTRL", "SHIFT"}:
                held.append(name)
                messages.append(f"Hotkey: {name}")
            else:
                joined = "+".join([*held, name])
                messages.append(f"Hotkey: {joined}" if held else f"Key Press: {name}")
        seconds = (time - zero) / 1000
        stamp = f"00:{int(seconds // 60):02d}:{seconds % 60:06.3f}"
        for message in messages:
            line = {"timestamp": stamp, "message": message, "window": "form.exe - Form"}
            text += json.dumps(line) + "\n"
    window = {"timestamp": "00:00:00.005", "message": "Active Window: form.exe - Form"}
    (out / "input_log_20250912_085417.txt").write_text(text + json.dumps(window) + "\n")
    return out


VIDEO_CUA_ACTIONS: tuple[dict[str, Any], ...] = (
    {"action_type": "MOVE_TO", "timestamp": 1.0, "action_params": {"x": 50, "y": 60}},
    {"action_type": "CLICK", "timestamp": 1.0, "action_params": {"x": 51, "y": 61, "text": "Left"}},
    {"action_type": "CLICK", "timestamp": 2, "action_params": {"x": 9, "y": 8, "numClicks": 2}},
    {"action_type": "CLICK", "timestamp": 2.5, "action_params": {"x": 9, "y": 8, "text": "Right"}},
    {"action_type": "MOUSE_DOWN", "timestamp": 3, "action_params": {"button": "left"}},
    {"action_type": "DRAG_TO", "timestamp": 3.2, "action_params": {"x": 90, "y": 80}},
    {"action_type": "MOUSE_UP", "timestamp": 3.4, "action_params": {"button": "left"}},
    {"action_type": "SCROLL", "timestamp": 4, "action_params": {"x": 7, "y": 6, "scrollY": -3}},
    {"action_type": "TYPING", "timestamp": 5, "action_params": {"text": "ll\n"}},
    {"action_type": "HOTKEY", "timestamp": 6, "action_params": {"keys": ["ctrl", "s"]}},
    {"action_type": "PRESS", "timestamp": 7, "action_params": {"key": "enter"}},
    {"action_type": "TERMINATE_SUCCESS", "timestamp": 8, "action_params": {}},
)


def video_cua(folder: Path, out: Path) -> Path:
    """Writes a task of VideoCUA, with actions of every kind."""
    (out / "video").mkdir(parents=True)
    shutil.copyfile(folder / "recording.mp4", out / "video" / "video.mp4")
    document = {
        "task_id": "51533",
        "task_instruction": "Organize research topics",
        "platform": "Joplin",
        "action_log": [{**action, "groundcua_id": None} for action in VIDEO_CUA_ACTIONS],
    }
    (out / "action_log.json").write_text(json.dumps(document, indent=1))
    return out
