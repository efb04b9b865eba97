"""Imports recordings of AgentNet Tool (OpenCUA) and its predecessor DuckTrack.

A recording is a folder with these files:

- `events.jsonl`: events of Python's pynput; times are seconds of a monotonic clock,
- `metadata.json`: `start_time`, the only time of day, in whole seconds; the importer assumes UTC,
- the video of OBS,
- `a11y.jsonl`: the trees of Windows' UI Automation,
- `element.jsonl`: the element under the pointer at each press.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from demo_pipeline.importers.agentnet_trees import tree_scans
from demo_pipeline.importers.source_facts import SourceFiles
from demo_pipeline.importers.source_keys import DeadKeys, dead_accent, pynput_key
from demo_pipeline.importers.source_recording import (
    PYNPUT_KEY_EVENTS,
    Importer,
    SourceLine,
    SourceRecording,
    VideoPart,
    pointer_lines,
)
from demo_pipeline.importers.source_values import (
    UnreadableSourceError,
    as_list,
    as_object,
    json_lines,
    json_object,
    number,
    plain_text,
    screen_size,
    zoneless_time,
)

_EVENTS = "events.jsonl"
_METADATA = "metadata.json"
_TREES = "a11y.jsonl"
_ELEMENTS = "element.jsonl"
_TASK = "task_name.json"
_VIDEOS = (".mp4", ".mkv", ".mov", ".flv")
_UNUSED = ("top_window.jsonl", "html.jsonl", "reduced_events_complete.jsonl")
_PLATFORMS = {"Windows": "windows", "Darwin": "macos", "Linux": "linux"}


def _find(folder: Path, names: Sequence[str]) -> list[SourceFiles]:
    """Returns the folder as one recording if it has events and metadata, else an empty list."""
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


class _RecordingClock:
    """Converts the source's monotonic seconds to epoch milliseconds, and leaves out pauses.

    The video does not contain the pauses either. The video starts at `video_start_timestamp`, as in
    AgentNet's own tools. If this field is missing, the video starts when OBS reported its start. If
    OBS reported nothing, it starts at the first event.
    """

    def __init__(self, metadata: dict[str, Any], where: Path) -> None:
        began = zoneless_time(metadata.get("start_time"), "%Y-%m-%d %H:%M:%S")
        if began is None:
            message = "start_time: expected a time such as 2024-11-05 18:56:31"
            raise UnreadableSourceError(f"{where}: {message}")
        self.began = began
        timings = as_object(metadata.get("obs_record_state_timings"))
        starts = as_list(timings.get("OBS_WEBSOCKET_OUTPUT_STARTED"))
        first_start = next(iter(starts), None)
        self._origin = number(metadata.get("video_start_timestamp")) or number(first_start)
        self._paused_at: float | None = None
        self._paused = 0.0  # total duration of all pauses so far, seconds

    def epoch_ms(self, seconds: float) -> float:
        """Converts monotonic seconds of the source to epoch milliseconds."""
        if self._origin is None:
            self._origin = seconds
        return self.began.timestamp() * 1000 + (seconds - self._origin - self._paused) * 1000

    def pause(self, seconds: float) -> None:
        """Records that a pause began at `seconds`, in monotonic seconds of the source."""
        self._paused_at = seconds

    def resume(self, seconds: float) -> None:
        """Records that the pause ended at `seconds`, in monotonic seconds of the source."""
        if self._paused_at is not None:
            self._paused += max(seconds - self._paused_at, 0.0)
        self._paused_at = None


def _read(source: SourceFiles) -> SourceRecording:
    metadata = json_object(source.folder / _METADATA)
    clock = _RecordingClock(metadata, source.folder / _METADATA)
    if not source.videos:
        raise UnreadableSourceError(
            f"{source.folder}: its video is missing: put OBS's video into it"
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
    scans = tree_scans(trees, elements, clock.epoch_ms, presses, left_out)
    task: dict[str, Any] = {}
    if _TASK in others:
        task = json_object(others[_TASK])
    lost = [name for name in _UNUSED if (source.folder / name).is_file()]
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
    event: dict[str, Any], keys: DeadKeys, clock: _RecordingClock, left_out: Counter[str]
) -> Iterator[SourceLine]:
    """Yields the lines of input_log.jsonl for an event; counts ignored events in `left_out`."""
    seconds = number(event.get("time_stamp"))
    action = plain_text(event.get("action"))
    if seconds is None:
        left_out["events without a time"] += 1
        return
    if action == "pause":
        clock.pause(seconds)
        left_out["pauses; the video does not contain their time either"] += 1
        return
    if action == "resume":
        clock.resume(seconds)
        return
    time = clock.epoch_ms(seconds)
    if action in PYNPUT_KEY_EVENTS:
        yield SourceLine(PYNPUT_KEY_EVENTS[action], _key(event, keys, action == "press"), time)
        return
    yield from pointer_lines(action, event, time, keys.platform, left_out)


# AgentNet logs the name of a key, and pynput's printed form of the key: `'a'` for a character,
# `<101>` for a code, and the accent in square brackets for a dead key.
_CODE = re.compile(r"<(\d{1,9})>")


def _key(event: dict[str, Any], keys: DeadKeys, is_press: bool) -> dict[str, Any]:
    """Returns the data of a log line for a key event.

    Events of DuckTrack have only the key's name or character.
    """
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
    events: Iterable[dict[str, Any]], clock: _RecordingClock, presses: dict[float, float]
) -> Iterator[dict[str, Any]]:
    """Yields the events unchanged, and adds the times of mouse presses to `presses`.

    Args:
        presses: maps the times of presses, in seconds of the source, to epoch milliseconds.
    """
    for event in events:
        seconds = number(event.get("time_stamp"))
        is_press = event.get("action") == "click" and event.get("pressed") is True
        if is_press and seconds is not None:
            presses[seconds] = clock.epoch_ms(seconds)
        yield event


AGENTNET = Importer(
    tool="AgentNet Tool, DuckTrack",
    files=f"{_EVENTS} and {_METADATA} with OBS's video in one folder",
    find=_find,
    read=_read,
)
