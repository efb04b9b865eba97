"""AgentNet Tool of OpenCUA, and DuckTrack, which it grew out of: a folder with `events.jsonl`.

The folder holds events of Python's pynput with times in seconds of a monotonic clock, OBS's video,
the trees of Windows' UI Automation in `a11y.jsonl`, and in `element.jsonl` the element under the
pointer at each press. The only time of day is `start_time`, to the second and without a zone; it is
taken as UTC.
"""

import heapq
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

from demo_pipeline.importers.source_keys import DeadKeys, dead_accent, pynput_key
from demo_pipeline.importers.source_recording import (
    PYNPUT_KEY_EVENTS,
    Importer,
    SourceFiles,
    SourceLine,
    SourceRecording,
    UnreadableSourceError,
    VideoPart,
    as_list,
    as_object,
    json_lines,
    json_object,
    number,
    numbers,
    plain_text,
    pointer_lines,
    screen_size,
)

_EVENTS = "events.jsonl"
_METADATA = "metadata.json"
_TREES = "a11y.jsonl"
_ELEMENTS = "element.jsonl"
_TASK = "task_name.json"
_VIDEOS = (".mp4", ".mkv", ".mov", ".flv")
_UNUSED = ("top_window.jsonl", "html.jsonl", "reduced_events_complete.jsonl")
_PLATFORMS = {"Windows": "windows", "Darwin": "macos", "Linux": "linux"}
_SIDES = ("left", "top", "right", "bottom")
_MOST_LEVELS = 400  # of a tree's nodes; real ones have 30
# Keys in the lines of these two files.
_TREE = "axtree"
_ELEMENT = "a11y_tree"
_SAME_PRESS_S = 0.1  # between two listeners of one press; the tool itself accepts 0.3


def _find(folder: Path, names: Sequence[str]) -> list[SourceFiles]:
    """The folder, if it holds the events and their metadata."""
    if not {_EVENTS, _METADATA} <= set(names):
        return []
    others = [name for name in (_TREES, _ELEMENTS, _TASK) if name in names]
    videos = [name for name in sorted(names) if name.lower().endswith(_VIDEOS)]
    return [
        SourceFiles(
            folder=folder,
            name=folder.resolve().name,
            logs=(folder / _EVENTS, folder / _METADATA),
            videos=tuple(folder / name for name in videos),
            others=tuple(folder / name for name in others),
        )
    ]


class _TimeOfDay:
    """Monotonic seconds as epoch milliseconds, the time of pauses, which are not filmed, left out.

    The video begins when OBS says that it has started; AgentNet's own `video_start_timestamp` is
    taken first, as its own tools do.
    """

    def __init__(self, metadata: dict[str, Any], where: Path) -> None:
        text = plain_text(metadata.get("start_time"))
        try:
            self.began = datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        except ValueError:
            message = "start_time: expected a time such as 2024-11-05 18:56:31"
            raise UnreadableSourceError(f"{where}: {message}") from None
        states = metadata.get("obs_record_state_timings")
        timings = as_object(states)
        started = timings.get("OBS_WEBSOCKET_OUTPUT_STARTED")
        first = next(iter(as_list(started)), None)
        self._origin = number(metadata.get("video_start_timestamp")) or number(first)
        self._paused_at: float | None = None
        self._paused = 0.0

    def of(self, seconds: float) -> float:
        """Epoch milliseconds of a time of the source."""
        if self._origin is None:
            self._origin = seconds
        return self.began.timestamp() * 1000 + (seconds - self._origin - self._paused) * 1000

    def pause(self, seconds: float, *, begins: bool) -> None:
        """The recording, and OBS, paused, or went on."""
        if not begins and self._paused_at is not None:
            self._paused += max(seconds - self._paused_at, 0.0)
        self._paused_at = None
        if begins:
            self._paused_at = seconds


def _read(source: SourceFiles) -> SourceRecording:
    metadata = json_object(source.folder / _METADATA)
    clock = _TimeOfDay(metadata, source.folder / _METADATA)
    if not source.videos:
        raise UnreadableSourceError(
            f"{source.folder}: the video is missing: put OBS's video into it"
        )
    platform = _PLATFORMS.get(plain_text(metadata.get("system")), "")
    damaged = list[str]()
    left_out = Counter[str]()
    others = {path.name: path for path in source.others}
    presses: dict[float, float] = {}
    events = _note_presses(json_lines(source.folder / _EVENTS, damaged), clock, presses)
    keys = DeadKeys(platform)
    lines = chain.from_iterable(_lines(event, keys, clock, left_out) for event in events)
    trees: Iterable[dict[str, Any]] = ()
    if _TREES in others:
        trees = json_lines(others[_TREES], damaged)
    elements: Iterable[dict[str, Any]] = ()
    if _ELEMENTS in others:
        elements = json_lines(others[_ELEMENTS], damaged)
    scans = _scans(trees, elements, clock, presses, left_out)
    task: dict[str, Any] = {}
    if _TASK in others:
        task = json_object(others[_TASK])
    lost = [f"{name}" for name in _UNUSED if (source.folder / name).is_file()]
    lost += ["sound of the video", "the time zone of start_time, which is taken as UTC"]
    lost += [f"{video.name}: a further video" for video in source.videos[1:]]
    return SourceRecording(
        recorded_at=clock.began,
        platform=platform,
        lines=chain(lines, scans),
        video=(VideoPart(source.videos[0]),),
        screen=screen_size(metadata.get("screen_width"), metadata.get("screen_height")),
        task=plain_text(task.get("task_name")) or plain_text(task.get("description")),
        arch=plain_text(metadata.get("machine")),
        version=plain_text(metadata.get("version")),
        lost=lost,
        left_out=left_out,
        damaged=damaged,
    )


def _lines(
    event: dict[str, Any], keys: DeadKeys, clock: _TimeOfDay, left_out: Counter[str]
) -> Iterator[SourceLine]:
    """Yield the lines for an event, and count what has none in `left_out`."""
    seconds = number(event.get("time_stamp"))
    action = plain_text(event.get("action"))
    if seconds is None:
        left_out["without time"] += 1
        return
    if action in {"pause", "resume"}:
        clock.pause(seconds, begins=action == "pause")
        left_out["pauses, which are not filmed either"] += action == "pause"
        return
    time = clock.of(seconds)
    if action in PYNPUT_KEY_EVENTS:
        yield SourceLine(PYNPUT_KEY_EVENTS[action], _key(event, keys, action == "press"), time)
        return
    yield from pointer_lines(action, event, time, keys.platform, left_out)


# Besides the name of a key AgentNet writes how pynput prints it: `'a'` for a character,
# `<101>` for a code, and in square brackets the accent of a dead key.
_CODE = re.compile(r"<(\d{1,9})>")


def _key(event: dict[str, Any], keys: DeadKeys, is_press: bool) -> dict[str, Any]:
    """The data of a key; DuckTrack writes only its name or its character."""
    name = event.get("name")
    label = event.get("pynput_key")
    printed = label if isinstance(label, str) else ""
    code = _CODE.fullmatch(printed)
    typed = not printed or printed == repr(name)
    key_code = None
    if code is not None:
        key_code = int(code[1])
    data = pynput_key(name, keys.platform, typed=typed, code=key_code)
    if not is_press:
        return keys.released(data)
    accent = ""
    if isinstance(name, str):
        is_dead = printed.startswith("[") and printed.endswith("]")
        accent = name if is_dead else dead_accent(name)
    return keys.pressed(data, accent)


def _note_presses(
    events: Iterable[dict[str, Any]], clock: _TimeOfDay, presses: dict[float, float]
) -> Iterator[dict[str, Any]]:
    """Yield the events; put the time of each press into `presses`: seconds → epoch milliseconds."""
    for event in events:
        seconds = number(event.get("time_stamp"))
        is_press = event.get("action") == "click" and event.get("pressed") is True
        if is_press and seconds is not None:
            presses[seconds] = clock.of(seconds)
        yield event


def _scans(
    trees: Iterable[dict[str, Any]],
    elements: Iterable[dict[str, Any]],
    clock: _TimeOfDay,
    presses: Mapping[float, float],
    left_out: Counter[str],
) -> Iterator[SourceLine]:
    """Yield the trees of windows, and of the elements at presses that the last tree lacks.

    How long it took to read a tree is not recorded. The tool asks what is under the pointer as the
    button goes down. An element that the last tree has would only hide the rest of that tree.
    """
    seconds_of_presses = sorted(presses)
    newest: set[tuple[Any, ...]] = set()
    in_order = heapq.merge(_timed(trees, _TREE), _timed(elements, _ELEMENT), key=itemgetter(0))
    for seconds, kind, tree in in_order:
        node = _node(tree, _MOST_LEVELS)
        if node is None:
            left_out["elements that are not in the form of UI Automation"] += kind == _ELEMENT
            continue
        time = clock.of(seconds)
        own = set(_identities(node))
        if kind == _ELEMENT:
            press = _nearest(seconds_of_presses, seconds)
            if press is None:
                left_out["elements without a press"] += 1
                continue
            if own <= newest:
                continue
            time = presses[press]
        newest = own
        scan: dict[str, Any] = {
            "duration": 0,
            "focused_element": None,
            "queries": {},
            "tree": [node],
        }
        yield SourceLine("axtree", scan, time)


def _timed(
    values: Iterable[dict[str, Any]], kind: str
) -> Iterator[tuple[float, str, dict[str, Any]]]:
    """Yield the seconds, the kind and the tree of each line that has them."""
    for value in values:
        seconds = number(value.get("time_stamp"))
        tree = value.get(kind)
        if seconds is not None and isinstance(tree, dict):
            yield seconds, kind, tree


def _identities(node: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield role, name and box of a node and of all below it."""
    box = node["bbox"] or {}
    yield node["role"], node["name"], *box.values()
    for child in node["children"]:
        yield from _identities(child)


def _nearest(ascending: Sequence[float], seconds: float) -> float | None:
    """The press of an element; None: no press at that time."""
    at = bisect_left(ascending, seconds)
    near = ascending[max(0, at - 1) : at + 1]
    nearest = min(near, key=lambda press: abs(press - seconds), default=None)
    if nearest is None or abs(nearest - seconds) > _SAME_PRESS_S:
        return None
    return nearest


def _node(value: dict[str, Any], levels: int) -> dict[str, Any] | None:
    """A node in the form of the log; None for one without a role, or too deep."""
    role = plain_text(value.get("ControlType"))
    box = value.get("BoundingRectangle")
    if not role or not levels:
        return None
    bbox = None
    if isinstance(box, dict) and (sides := numbers(box.get(side) for side in _SIDES)):
        left, top, right, bottom = sides
        bbox = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    below = value.get("Children")
    nodes = [node for node in as_list(below) if isinstance(node, dict)]
    return {
        "bbox": bbox,
        "children": [inner for node in nodes if (inner := _node(node, levels - 1)) is not None],
        "description": "",
        "name": plain_text(value.get("Name")),
        "role": role,
        "states": {},
        "value": "",
    }


AGENTNET = Importer(
    tool="AgentNet Tool, DuckTrack",
    files=f"{_EVENTS} and {_METADATA} with OBS's video in one folder",
    find=_find,
    read=_read,
)
