"""Parses input_log.jsonl line by line into events and rejected lines.

Unknown fields of a line are ignored. A line with a value of a wrong type, or with a time too far
from the others, is rejected. Accessibility trees, about half a megabyte each, are not decoded.

The documented unit of times is epoch milliseconds. Some recorders write fractional epoch
seconds, epoch microseconds or epoch nanoseconds. Others write milliseconds since the recording
began. The magnitude of the times shows the unit.
"""

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import NoneType
from typing import Annotated, Any, BinaryIO, get_args, get_type_hints

import msgspec
import pyarrow as pa
from msgspec import Meta

from demo_pipeline.files.json_files import deeper_calls
from demo_pipeline.files.parquet import TEXT, Domain, described_schema
from demo_pipeline.files.recording_files import LOG_FILE
from demo_pipeline.problems import Problem


class EventType(StrEnum):
    """The documented values of `event` in input_log.jsonl."""

    AXTREE = "axtree"
    MOUSEMOVE = "mousemove"
    MOUSEDOWN = "mousedown"
    MOUSEUP = "mouseup"
    MOUSEWHEEL = "mousewheel"
    KEYDOWN = "keydown"
    KEYUP = "keyup"


# Plain strings: comparing a string with an enum member is several times slower.
MOUSEMOVE = EventType.MOUSEMOVE.value
MOUSEWHEEL = EventType.MOUSEWHEEL.value
DOCUMENTED_EVENTS = frozenset(event.value for event in EventType)
BUTTON_EVENTS = frozenset({EventType.MOUSEDOWN.value, EventType.MOUSEUP.value})
POINTER_EVENTS = BUTTON_EVENTS | {MOUSEMOVE}
KEY_EVENTS = frozenset({EventType.KEYDOWN.value, EventType.KEYUP.value})
INPUT_EVENTS = POINTER_EVENTS | KEY_EVENTS | {MOUSEWHEEL}
# An event with this name replaces input that the recorder of an imported recording withheld.
WITHHELD_EVENT = "redacted"
# Undocumented events that recorders in use are known to write.
_RECORDER_EVENTS = frozenset(
    {
        *{"axtree_interaction", "axtree_post_recording", "axtree_pre_recording", "mousedelta"},
        *{"ffmpeg_stderr", "ffmpeg_stdout", "joystickaxis", "joystickdown", "joystickup"},
        WITHHELD_EVENT,
    }
)


def public_event_name(raw: str) -> str:
    """Returns an event's name if known, otherwise only its length, because it may be private."""
    if raw in DOCUMENTED_EVENTS or raw in _RECORDER_EVENTS:
        return raw
    return shape_of("event", raw)


def shape_of(kind: str, text: str) -> str:
    """Describes a possibly private text only by its length, as in `unknown key, 7 characters`.

    Args:
        kind: the kind of thing that the text should name, such as `key`.
    """
    return f"unknown {kind}, {len(text)} character{'s' if len(text) != 1 else ''}"


_TYPES: Mapping[str, Any] = {
    "a number": int | float,
    "a valid string": str,
    "a valid boolean": bool,
    "a valid list": list,
    "a valid dictionary": dict,
    "anything": object,
}
_NUMBER, _TEXT, _FLAG, _LIST, _OBJECT, _ANYTHING = _TYPES
# Expected type of a JSON value: a key of `_TYPES`, or the expected type of each field of an object.
_Form = str | Mapping[str, Any]
_POSITION_MEMBERS = {"x": _NUMBER, "y": _NUMBER}
_QUERY = {"element": _ANYTHING, "position": _POSITION_MEMBERS}
_DATA = {"duration": _NUMBER, "focused_element": _ANYTHING, "queries": _OBJECT, "tree": _LIST}
_SCAN = {"event": _TEXT, "data": _DATA, "time": _NUMBER}
_NODE = {
    "bbox": _POSITION_MEMBERS | {"width": _NUMBER, "height": _NUMBER},
    "children": _LIST,
    "description": _TEXT,
    "name": _TEXT,
    "role": _TEXT,
    "states": {"enabled": _FLAG, "keyboard_focusable": _FLAG, "visible": _FLAG},
    "value": _TEXT,
}


def scan_fault(scan: Any) -> str:
    """Describes the first difference between an accessibility scan and its documented format.

    Args:
        scan: a line of the log, parsed from JSON.

    Returns:
        The path and the fault, without logged values. Empty if there is no difference.
    """
    if fault := _fault(scan, _SCAN, ""):
        return fault
    data = scan["data"]
    roots = {"data.focused_element": data["focused_element"]}
    for number, query in enumerate(data["queries"].values()):
        if fault := _fault(query, _QUERY, f"data.queries[{number}]"):
            return fault
        roots[f"data.queries[{number}].element"] = query["element"]
    roots = {where: node for where, node in roots.items() if node is not None}
    roots |= {f"data.tree[{number}]": node for number, node in enumerate(data["tree"])}
    return next(filter(None, map(_tree_fault, roots.values(), roots)), "")


def _tree_fault(root: Any, where: str) -> str:
    """Describes the first fault of an accessibility tree, or returns an empty string.

    The tree may have any depth. The description numbers the nodes in document order.
    """
    pending = [root]
    number = 0
    while pending:
        node = pending.pop()
        if fault := _fault(node, _NODE, f"{where} node {number}" if number else where):
            return fault
        pending.extend(reversed(node["children"]))
        number += 1
    return ""


def _fault(value: Any, form: _Form, where: str) -> str:
    """Describes where a JSON value differs from its expected type, or returns an empty string.

    `where` is the path to the value in the line, such as `data.tree[0]`.
    """
    if isinstance(form, str):
        fits = isinstance(value, _TYPES[form]) and (form != _NUMBER or not isinstance(value, bool))
        return "" if fits else f"{where}: Input should be {form}"
    if not isinstance(value, dict):
        return f"{where or 'event'}: Input should be {_OBJECT}"
    above = ""
    if where:
        above = f"{where}."
    for name, inner in form.items():
        if name not in value:
            return f"{above}{name}: Field required"
        if fault := _fault(value[name], inner, f"{above}{name}"):
            return fault
    others = (shape_of("field", name) for name in value if name not in form)
    return next((f"{above}{other}: Extra inputs are not permitted" for other in others), "")


_ARROW_TYPES = {int: pa.int64(), float: pa.float64(), str: pa.string()}
_LineNumber = Annotated[int, Meta(ge=1, description="1-based line number in input_log.jsonl")]
_ByteOffset = Annotated[
    int, Meta(ge=0, description="offset of the line's first byte in input_log.jsonl")
]
_ByteLength = Annotated[
    int, Meta(ge=0, description="number of bytes of the line, without its line end")
]
_TIME = (
    "time of the event, epoch milliseconds; corrected if the recorder's clock was set during the "
    "recording"
)
_POSITION = (
    "position of the pointer in screen pixels (points on macOS), relative to the main display's "
    "top left corner; null if none was logged"
)
_TRUE_POSITION = (
    "true position of the pointer, in the same unit, if the recorder clipped x and y to the main "
    "display; null if none was logged"
)
_BUTTON = "name of the mouse button, as logged; null for other events"
_KEY = "name of the key, as logged; null for other events"
_DELTA = "rotation of the mouse wheel, with the logged unit and sign; null for other events"
_TYPED = "character that a key typed, as text or as the recorder's JSON; null if none was logged"
_PAYLOAD = "data of an undocumented event, as raw JSON; null for documented events"
_DURATION = "duration of the scan, milliseconds; null if no usable duration was logged"
_REASON_CODE = "stable name of the reason for the rejection, such as invalid_json"
_REASON = "what is wrong with the line, for people; never quotes the line"


class Event(msgspec.Struct, frozen=True, gc=False):
    """An accepted line of the input log; `EVENTS_SCHEMA` and `SCANS_SCHEMA` derive from it."""

    event_index: _LineNumber
    byte_offset: _ByteOffset
    byte_length: _ByteLength
    event: Annotated[str, Meta(description="name of the event, as logged")]
    time_ms: Annotated[int, Meta(ge=0, description=_TIME)]
    x: Annotated[float | None, Meta(description=_POSITION)] = None
    y: Annotated[float | None, Meta(description=_POSITION)] = None
    raw_x: Annotated[float | None, Meta(description=_TRUE_POSITION)] = None
    raw_y: Annotated[float | None, Meta(description=_TRUE_POSITION)] = None
    button: Annotated[str | None, Meta(description=_BUTTON)] = None
    delta: Annotated[float | None, Meta(description=_DELTA)] = None
    key: Annotated[str | None, Meta(description=_KEY)] = None
    actual_char: Annotated[str | None, Meta(description=_TYPED)] = None
    payload: Annotated[str | None, Meta(description=_PAYLOAD)] = None
    duration_ms: Annotated[int | None, Meta(ge=0, description=_DURATION)] = None


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """A line that could not be read; `REJECTED_SCHEMA` derives from it."""

    line: _LineNumber
    byte_offset: _ByteOffset
    byte_length: _ByteLength
    code: Annotated[str, Meta(min_length=1, description=_REASON_CODE)]
    message: Annotated[str, Meta(min_length=1, description=_REASON)]


def _schema_of(row: type[msgspec.Struct], columns: Sequence[str]) -> pa.Schema:
    """Returns the schema of a table that has the fields `columns` of the struct `row`."""
    annotations = get_type_hints(row, include_extras=True)
    described = []
    domains = {}
    for name in columns:
        kind, meta = get_args(annotations[name])
        types = set(get_args(kind) or (kind,))
        nullable = NoneType in types
        [plain] = types - {NoneType}
        domains[name] = TEXT if meta.min_length else Domain(low=meta.ge)
        described.append((name, _ARROW_TYPES[plain], nullable, meta.description))
    return described_schema(described, domains)


EVENTS_SCHEMA = _schema_of(Event, [n for n in Event.__struct_fields__ if n != "duration_ms"])
SCANS_SCHEMA = _schema_of(
    Event, ("event_index", "byte_offset", "byte_length", "time_ms", "duration_ms")
)
REJECTED_SCHEMA = _schema_of(Rejected, Rejected.__struct_fields__)


BOM = b"\xef\xbb\xbf"
LINE_END = b"\r\n"
# Maximum length of a line; longer lines are rejected without being decoded. The longest known scan
# has 4 MB. With a scan of 120,000 elements (about 30 MB), processing took 1.33 GB of memory.
MAX_LINE_BYTES = 12 * 2**20
BUFFER_BYTES = 2**20  # Python's default of 8 kB is slow for the lines of scans


def split_lines(stream: BinaryIO, limit: int) -> Iterator[tuple[int, int, int, bytes | None]]:
    """Yields the 1-based number, the byte offset, the length and the bytes of each line.

    Lines end with LF or CR LF. A BOM at the start of the file is not part of the first line. The
    length excludes the line end, but the bytes include it. The bytes are None if the line is longer
    than `limit`.
    """
    offset = 0
    number = 0
    while raw := stream.readline(limit + len(BOM) + len(LINE_END)):
        number += 1
        start = offset
        size = len(raw)
        last = raw
        while not last.endswith(b"\n") and (rest := stream.readline(BUFFER_BYTES)):
            size = size + len(rest)
            last = last[-1:] + rest
        offset += size
        if number == 1 and raw.startswith(BOM):
            start = len(BOM)
            raw = raw[len(BOM) :]
        lone = last.endswith(b"\n") and not last.endswith(LINE_END)
        length = offset - start - (1 if lone else len(last) - len(last.rstrip(LINE_END)))
        yield number, start, length, raw if length <= limit else None


# Milliseconds per day. A time more than a day from the median is damaged, because recordings take
# minutes, and a wrong time zone shifts all times by less than a day.
DAY_MS = 24 * 3600 * 1000
# Larger logged times are clamped to this value, because huge integers do not fit into a float.
_FAR = 1e30
# Maximum number of times kept to compute the median. In a longer log, only every n-th time is kept.
_MAX_TIMES = 2**16


@dataclass(frozen=True, slots=True)
class _TimeUnit:
    """A unit of time: its name and its length in milliseconds."""

    name: str
    milliseconds: float

    def to_ms(self, value: float) -> float:
        """Converts a time in this unit to milliseconds without rounding; limits it to ±`_FAR`."""
        value = _cut(value)
        if self.milliseconds < 1:
            return value / round(1 / self.milliseconds)
        return value * self.milliseconds

    def duration_ms(self, value: float) -> float:
        """Converts a logged duration to milliseconds.

        If the result would be shorter than 1 ms, the value is assumed to be in milliseconds
        already.
        """
        converted = self.to_ms(value)
        return value if 0 < converted < 1 <= value else converted


MILLISECONDS = _TimeUnit("milliseconds", 1)
# Times between these limits (2014 to about the year 5000) show their unit by their size. All other
# numbers, such as the times of 1970 in the format document, are read as milliseconds.
_EARLIEST_S = 1.4e9
_LATEST_S = 1e11
_EARLIEST_MS = _EARLIEST_S * 1000
_OTHER_UNITS = (
    _TimeUnit("seconds", 1000),
    _TimeUnit("microseconds", 1e-3),
    _TimeUnit("nanoseconds", 1e-6),
)


@dataclass(frozen=True, slots=True)
class TimeScale:
    """Unit and origin of a log's times, and facts about their order and range.

    Attributes:
        unit: the unit that most lines use.
        median_ms: median of all times, epoch milliseconds. None if it is unknown or before 2014,
            because most times are then wrong.
        origin_ms: epoch milliseconds of the logged time 0: the start of the recording if the logged
            times count from there, otherwise 0.
        back_ms: the largest time by which an input line is earlier than a line before it,
            milliseconds; 0 if the times of all input lines are in order.
        last_ms: the latest time of an input line, epoch milliseconds.
    """

    unit: _TimeUnit = MILLISECONDS
    median_ms: float | None = None
    origin_ms: int = 0
    back_ms: float = 0.0
    last_ms: float = 0.0

    def to_epoch_ms(self, value: float) -> float:
        """Converts a logged time to epoch milliseconds without rounding.

        If the times of a log count from the start of the recording, a time that is clearly an epoch
        time (after 2014) is not shifted.
        """
        milliseconds = self.unit.to_ms(value)
        return milliseconds + (self.origin_ms if milliseconds < _EARLIEST_MS else 0)

    def is_far(self, milliseconds: float) -> bool:
        """Returns whether a time is more than a day from the median, as in a damaged line."""
        return self.median_ms is not None and abs(milliseconds - self.median_ms) > DAY_MS


class _Time(msgspec.Struct):
    time: int | float
    event: Any = None


_decode_time = msgspec.json.Decoder(_Time).decode


def _cut(value: float) -> float:
    return max(-_FAR, min(value, _FAR))


def unit_of_time(value: float) -> _TimeUnit:
    """Returns the unit in which `value` is a time after 2014, or milliseconds if no unit fits."""
    if _EARLIEST_MS <= value < _LATEST_S * 1000:
        return MILLISECONDS
    for unit in _OTHER_UNITS:
        if _EARLIEST_S <= unit.to_ms(value) / 1000 < _LATEST_S:
            return unit
    return MILLISECONDS


def find_time_scale(stream: BinaryIO, recorded_at: datetime | None = None) -> TimeScale:
    """Reads a log to its end to find the unit and the origin of its times.

    The most frequent unit is chosen, or the first among equally frequent units. If the times are in
    milliseconds and their median is less than a day, they count from `recorded_at`. The field
    `timestamp_type` of input_log_meta.json is ignored, because uploaders add this file to older
    logs.

    Args:
        recorded_at: meta.timestamp, or None if unknown.
    """
    units: Counter[_TimeUnit] = Counter()
    times = array("d")
    every = 1
    lines = 0
    latest = float("-inf")
    back = 0.0
    for _, _, _, line in split_lines(stream, MAX_LINE_BYTES):
        try:
            timed = None if line is None else _decode_time(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
        if timed is None:
            continue
        value = _cut(timed.time)
        if isinstance(timed.event, str) and timed.event in INPUT_EVENTS:
            back = max(back, latest - value)
            latest = max(latest, value)
        if lines % every == 0:
            times.append(value)
        lines += 1
        if len(times) > _MAX_TIMES:
            times = times[::2]
            every = 2 * every
        if value > 0:
            units[unit_of_time(value)] += 1
    unit = MILLISECONDS
    if units:
        unit = units.most_common(1)[0][0]
    median_ms = 0.0
    if times:
        median_ms = unit.to_ms(sorted(times)[len(times) // 2])
    origin_ms = 0
    if recorded_at is not None and unit == MILLISECONDS and median_ms < DAY_MS:
        origin_ms = round(recorded_at.timestamp() * 1000)
    median_ms += origin_ms
    known_ms = median_ms if median_ms >= _EARLIEST_MS else None
    return TimeScale(unit, known_ms, origin_ms, unit.to_ms(back), unit.to_ms(latest) + origin_ms)


def time_unit_problems(scale: TimeScale) -> list[Problem]:
    """Returns a problem if the times of a log are not in milliseconds."""
    if scale.unit == MILLISECONDS:
        return []
    message = f"time: most values are epoch {scale.unit.name}, not milliseconds; all were converted"
    remedy = "write `time` in epoch milliseconds"
    return [Problem("time_unit", LOG_FILE, message, remedy=remedy)]


# Values beyond these limits come from damaged lines.
MAX_TIME_MS = 32_503_680_000_000  # epoch milliseconds of the year 3000
MAX_PIXELS = 10_000_000  # largest distance of a coordinate from the origin
MAX_DELTA = 1_000_000  # largest number of wheel units in an event
# Maximum depth of an accessibility tree; the deepest known page has 120 levels.
MAX_TREE_LEVELS = 490
_MAX_JSON_LEVELS = 3 + 2 * MAX_TREE_LEVELS  # an element adds two levels: an object and a list
_DEEP_CALLS = 2 * _MAX_JSON_LEVELS  # recursion limit while decoding; leaves room for the callers
# Maximum number of JSON objects in the line of an accessibility scan. An element has three objects,
# and a screen has a few thousand elements.
_MAX_SCAN_OBJECTS = 200_000
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKETS = re.compile(rb"([\[{]+)|[\]}]+")


class _Data(msgspec.Struct, gc=False):
    """The documented fields of an event's `data`; other fields are skipped."""

    x: float | None = None
    y: float | None = None
    raw_x: float | None = None
    raw_y: float | None = None
    button: str | None = None
    delta: float | None = None
    key: str | None = None
    actual_char: Any = None  # a text, or the `UnicodeInfo` of rdev as an object
    duration: float | None = None


class _Line(msgspec.Struct, gc=False):
    event: str
    time: int | float
    data: _Data | None = None


class _Envelope(msgspec.Struct):
    """A line of the log whose field `data` stays undecoded JSON."""

    event: str
    time: int | float
    data: msgspec.Raw = msgspec.Raw(b"null")


# Half of a surrogate pair, which recorders in Python log as an escape sequence or as three bytes.
# JSON decoders accept neither.
_HALF = re.compile(
    rb'"(actual_char|key)"\s*:\s*"(?:\\u(d[89a-f][0-9a-f]{2})|(\xed[\xa0-\xbf][\x80-\xbf]))"'
    rb'(?:\s*,\s*"actual_char"\s*:\s*null)?',
    re.IGNORECASE,
)
_NO_DATA = _Data()
_MILLISECONDS = TimeScale()
_decode_line = msgspec.json.Decoder(_Line).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode


class _LineError(Exception):
    """Raised when a line is rejected; states the reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def parse_log(
    stream: BinaryIO, scale: TimeScale = _MILLISECONDS, *, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[Event | Rejected]:
    """Yields an `Event` or a `Rejected` for each line, in file order.

    Memory use does not grow with the log. Open the file with `buffering=BUFFER_BYTES`, because
    Python's default buffer is slow for the long lines of scans.

    Args:
        stream: the log. Lines end with LF or CR LF. A BOM is ignored.
        scale: converts the times. A line whose time is far from the median is rejected.
        max_line_bytes: a longer line is rejected without being decoded.
    """
    for number, offset, length, line in split_lines(stream, max_line_bytes):
        if line is None:
            message = f"line is longer than {max_line_bytes} bytes, more than any tree of a screen"
            yield Rejected(number, offset, length, "line_too_long", message)
            continue
        try:
            parsed = _decode_documented(line)
            if parsed is None:
                event = _decode_any(number, offset, line.rstrip(LINE_END), scale)
            else:
                event = _documented_event(number, offset, length, parsed, scale)
        except _LineError as error:
            yield Rejected(number, offset, length, error.code, str(error))
            continue
        if event.event == EventType.AXTREE and line.count(b"{") > _MAX_SCAN_OBJECTS:
            message = f"scan has more than {_MAX_SCAN_OBJECTS} objects, more than any screen"
            yield Rejected(number, offset, length, "too_many_elements", message)
        else:
            yield event


def _decode_documented(line: bytes) -> _Line | None:
    """Decodes a line of a documented event, or returns None if only `_decode_any` can read it."""
    try:
        parsed = _decode_line(line)
        _check_utf8(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, _LineError):
        return None
    if parsed.event not in DOCUMENTED_EVENTS:
        return None
    return parsed


def _decode_any(number: int, offset: int, line: bytes, scale: TimeScale) -> Event:
    """Decodes any line, given without its line end.

    Raises:
        _LineError: the line cannot be read.
    """
    if not line.strip():
        raise _LineError("blank_line", "line is blank")
    _check_utf8(_HALF.sub(b"", line))
    try:
        return _decode_event(number, offset, line, scale)
    except RecursionError:
        # The depth at which this error is raised depends on the caller's depth of recursion, but
        # the accepted depth of JSON must not. Therefore, count the levels, and decode again with a
        # higher recursion limit.
        pass
    if _json_levels(line) > _MAX_JSON_LEVELS:
        message = f"JSON is nested more than {_MAX_JSON_LEVELS} levels deep, as a tree of more than"
        raise _LineError("nested_too_deeply", f"{message} {MAX_TREE_LEVELS} levels is")
    with deeper_decoding():
        return _decode_event(number, offset, line, scale)


def deeper_decoding() -> AbstractContextManager[None]:
    """Returns a context in which the JSON decoder can read trees of `MAX_TREE_LEVELS` levels."""
    return deeper_calls(_DEEP_CALLS)


def _json_levels(line: bytes) -> int:
    """Returns how deeply objects and lists are nested in a line of JSON."""
    level = 0
    deepest = 0
    for match in _BRACKETS.finditer(_STRING.sub(b"", line)):
        if match[1]:
            level += len(match[1])
            deepest = max(deepest, level)
        else:
            level -= len(match[0])
    return deepest


def _decode_event(number: int, offset: int, line: bytes, scale: TimeScale) -> Event:
    try:
        parsed = _decode_line(_HALF.sub(_as_unit, line))
    except msgspec.ValidationError as error:
        return _undocumented_event(number, offset, line, scale, str(error))
    except msgspec.DecodeError as error:
        raise _LineError("invalid_json", _without_content(str(error))) from None
    except UnicodeError:
        raise _LineError("invalid_text", "a string has an invalid escape sequence") from None
    if parsed.event not in DOCUMENTED_EVENTS:
        return _undocumented_event(number, offset, line, scale, "")
    return _documented_event(number, offset, len(line), parsed, scale)


def _as_unit(half: re.Match[bytes]) -> bytes:
    """Replaces half of a surrogate pair by rdev's `UnicodeInfo`, whose numbers are UTF-16 units.

    If the half was logged as the key's name, the name becomes `Unknown(0)`.
    """
    unit = int(half[2], 16) if half[2] else ord(half[3].decode(errors="surrogatepass"))
    name = b'"key":"Unknown(0)",' if half[1].lower() == b"key" else b""
    return name + b'"actual_char":{"name":null,"unicode":[%d],"is_dead":false}' % unit


def _documented_event(
    number: int, offset: int, length: int, line: _Line, scale: TimeScale
) -> Event:
    event = line.event
    data = line.data or _NO_DATA
    x = data.x
    y = data.y
    raw_x = data.raw_x
    raw_y = data.raw_y
    time_ms = _time(line.time, scale)
    _check_data(event, data)
    char = data.actual_char
    if char is not None and not isinstance(char, str):
        # A value that is neither text nor an object is put into a list, because later stages treat
        # a list as unreadable.
        char = msgspec.json.encode(char if isinstance(char, dict) else [char]).decode()
    duration = -1.0
    if data.duration is not None:
        duration = scale.unit.duration_ms(data.duration)
    return Event(
        event_index=number,
        byte_offset=offset,
        byte_length=length,
        event=event,
        time_ms=time_ms,
        x=x if y is not None else None,
        y=y if x is not None else None,
        raw_x=raw_x if raw_y is not None else None,
        raw_y=raw_y if raw_x is not None else None,
        button=data.button,
        delta=data.delta,
        key=data.key,
        actual_char=char,
        duration_ms=round(duration) if 0 <= duration <= MAX_TIME_MS else None,
    )


def _check_data(event: str, data: _Data) -> None:
    """Raises `_LineError` if a required value is missing, or if a value is beyond the limits."""
    missing = ""
    places = (data.x, data.y, data.raw_x, data.raw_y)
    if event == MOUSEMOVE and (data.x is None or data.y is None):
        missing = "data.x and data.y"
    elif event in BUTTON_EVENTS and not data.button:
        missing = "data.button"
    elif event in KEY_EVENTS and not data.key:
        missing = "data.key"
    elif event == MOUSEWHEEL and data.delta is None:
        missing = "data.delta"
    if missing:
        raise _LineError("missing_field", f"{event} without {missing}")
    if event in POINTER_EVENTS and max(abs(value or 0) for value in places) > MAX_PIXELS:
        message = f"{event} more than {MAX_PIXELS} pixels from the origin"
        raise _LineError("value_out_of_range", message)
    if event == MOUSEWHEEL and abs(data.delta or 0) > MAX_DELTA:
        raise _LineError("value_out_of_range", f"{event} with a delta above {MAX_DELTA}")


def _undocumented_event(
    number: int, offset: int, line: bytes, scale: TimeScale, decode_error: str
) -> Event:
    """Returns an undocumented event with its raw payload.

    Args:
        number: 1-based number of the line.
        offset: byte offset of the line in the file.
        line: the line without its line end.
        decode_error: the decoder's message if the line is not a valid documented event.

    Raises:
        _LineError: the event is a documented event with a wrong value, or the line cannot be read.
    """
    _check_utf8(line)
    try:
        envelope = _decode_envelope(line)
    except (msgspec.DecodeError, UnicodeError):
        raise _LineError("wrong_type", _without_content(decode_error)) from None
    if envelope.event in DOCUMENTED_EVENTS:
        raise _LineError("wrong_type", _without_content(decode_error))
    return Event(
        event_index=number,
        byte_offset=offset,
        byte_length=len(line),
        event=envelope.event,
        time_ms=_time(envelope.time, scale),
        payload=bytes(envelope.data).decode(),
    )


def _check_utf8(line: bytes) -> None:
    if line.isascii():
        return
    try:
        line.decode()
    except UnicodeDecodeError as error:
        message = f"byte {error.start} of the line is not UTF-8"
        raise _LineError("invalid_utf8", message) from None


def _time(value: float, scale: TimeScale) -> int:
    """Converts a logged time to epoch milliseconds; raises `_LineError` for impossible times."""
    milliseconds = scale.to_epoch_ms(value)
    if not 0 <= milliseconds <= MAX_TIME_MS:
        message = f"time is not epoch {scale.unit.name} before the year 3000"
        raise _LineError("time_out_of_range", message)
    if scale.is_far(milliseconds):
        message = "time is more than a day from the median of the log's times"
        raise _LineError("time_out_of_range", message)
    return round(milliseconds)


def _without_content(message: str) -> str:
    """Replaces a decoder's message that may quote the line, because the line may be private."""
    if "'" in message or '"' in message:
        return "line does not fit the format"
    return message
