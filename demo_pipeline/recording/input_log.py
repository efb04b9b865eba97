"""The streaming parser of input_log.jsonl: bytes in, events and rejected lines out.

Belongs here: decoding and validating one line at a time. Unknown fields are ignored, wrong types
are rejected, and accessibility trees are skipped without being decoded. What the events mean is in
actions/; the rows are declared in event_tables.py.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import msgspec

from demo_pipeline.formats.demonstration.event_types import (
    DOCUMENTED_EVENTS,
    KEY_EVENTS,
    MOUSEMOVE,
    MOUSEWHEEL,
    POINTER_EVENTS,
)
from demo_pipeline.recording.event_tables import Event, Rejected
from demo_pipeline.recording.log_lines import LINE_END, is_utf8, split_lines
from demo_pipeline.recording.time_units import TimeScale, TimeUnit
from demo_pipeline.settings import RecordingSettings

# Values beyond these limits come from damaged lines.
MAX_TIME_MS = 32_503_680_000_000  # epoch milliseconds: the year 3000
MAX_PIXELS = 10_000_000  # distance of a coordinate from the origin
MAX_DELTA = 1_000_000  # wheel units in one event
_MAX_JSON_DEPTH = 4_000  # JSON levels, two per tree node; safe on every platform's stack


class _Data(msgspec.Struct, gc=False):
    """The fields of `data` that a documented event may have; all others are skipped."""

    x: float | None = None
    y: float | None = None
    raw_x: float | None = None
    raw_y: float | None = None
    button: str | None = None
    delta: float | None = None
    key: str | None = None
    actual_char: Any = None  # text, or the object that a print describes
    duration: float | None = None


class _Line(msgspec.Struct, gc=False):
    event: str
    time: int | float
    data: _Data | None = None


class _Envelope(msgspec.Struct):
    """A line whose `data` is kept undecoded."""

    event: str
    time: int | float
    data: msgspec.Raw = msgspec.Raw(b"null")


_NO_DATA = _Data()
_MILLISECONDS = TimeScale()
_decode_line = msgspec.json.Decoder(_Line).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode


class _LineError(Exception):
    """The reason for which a line is rejected."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def parse_log(
    stream: BinaryIO, settings: RecordingSettings, scale: TimeScale = _MILLISECONDS
) -> Iterator[Event | Rejected]:
    """Yield one `Event` or `Rejected` for each line, in file order.

    Lines end with LF; a CR before it and a BOM at the start of the file are not part of a line.
    Times are converted from the unit of `scale`; a line far from its median is rejected. Memory is
    bounded by `settings.max_line_bytes`. Open the file with `buffering=BUFFER_BYTES`: the lines of
    scans are long, and Python's default buffer is slow for them.
    """
    for number, offset, length, line in split_lines(stream, settings.max_line_bytes):
        if line is None:
            message = f"line is longer than {settings.max_line_bytes} bytes"
            yield Rejected(number, offset, length, "line_too_long", message)
            continue
        try:
            parsed = _decode_documented(line)
            if parsed is None:
                yield _decode_any(number, offset, line.rstrip(LINE_END), scale)
            else:
                yield _documented_event(number, offset, length, parsed, scale)
        except _LineError as error:
            yield Rejected(number, offset, length, error.code, str(error))


def _decode_documented(line: bytes) -> _Line | None:
    """The fast path: a valid line of a documented event; None: `_decode_any` must decide."""
    try:
        parsed = _decode_line(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return parsed if parsed.event in DOCUMENTED_EVENTS and is_utf8(line) else None


def _decode_any(number: int, offset: int, line: bytes, scale: TimeScale) -> Event:
    """The event of any line (without its line end). Raises `_LineError` with the reason if none."""
    if not line.strip():
        raise _LineError("blank_line", "line is blank")
    _check_utf8(line)
    try:
        return _decode_event(number, offset, line, scale)
    except RecursionError:
        pass
    with _recursion_limit(_MAX_JSON_DEPTH):
        try:
            return _decode_event(number, offset, line, scale)
        except RecursionError:
            raise _LineError("nested_too_deeply", "JSON is nested too deeply") from None


def _decode_event(number: int, offset: int, line: bytes, scale: TimeScale) -> Event:
    try:
        parsed = _decode_line(line)
    except msgspec.ValidationError as error:
        return _undocumented_event(number, offset, line, scale, str(error))
    except msgspec.DecodeError as error:
        raise _LineError("invalid_json", _without_content(str(error))) from None
    except UnicodeError:
        raise _LineError("invalid_text", "a string has an invalid escape sequence") from None
    if parsed.event not in DOCUMENTED_EVENTS:
        return _undocumented_event(number, offset, line, scale, "")
    return _documented_event(number, offset, len(line), parsed, scale)


def _documented_event(
    number: int, offset: int, length: int, line: _Line, scale: TimeScale
) -> Event:
    event, data = line.event, line.data or _NO_DATA
    x, y, raw_x, raw_y = data.x, data.y, data.raw_x, data.raw_y
    time_ms = _time(line.time, scale)
    if event in POINTER_EVENTS:
        _check_pointer(event, data)
    elif event in KEY_EVENTS and not data.key:
        raise _LineError("missing_field", f"{event} without data.key")
    elif event == MOUSEWHEEL:
        _check_wheel(data.delta)
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
        actual_char=_logged_character(data.actual_char),
        duration_ms=None if data.duration is None else _duration(data.duration, scale.unit),
    )


def _logged_character(value: Any) -> str | None:
    """`actual_char` as text; of any other type but an object, text that no reader accepts."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value if isinstance(value, dict) else [value]).decode()


def _check_pointer(event: str, data: _Data) -> None:
    x, y = data.x, data.y
    if event == MOUSEMOVE and (x is None or y is None):
        raise _LineError("missing_field", f"{event} without data.x and data.y")
    if event != MOUSEMOVE and not data.button:
        raise _LineError("missing_field", f"{event} without data.button")
    if max(abs(value or 0) for value in (x, y, data.raw_x, data.raw_y)) > MAX_PIXELS:
        message = f"{event} more than {MAX_PIXELS} pixels from the origin"
        raise _LineError("value_out_of_range", message)


def _check_wheel(delta: float | None) -> None:
    if delta is None:
        raise _LineError("missing_field", f"{MOUSEWHEEL} without data.delta")
    if abs(delta) > MAX_DELTA:
        raise _LineError("value_out_of_range", f"{MOUSEWHEEL} with a delta above {MAX_DELTA}")


def _undocumented_event(
    number: int, offset: int, line: bytes, scale: TimeScale, decode_error: str
) -> Event:
    """An undocumented event with its raw payload; a documented one is rejected.

    `decode_error`: why the line is not a valid documented event.
    """
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
    milliseconds = scale.to_epoch_ms(value)
    if not 0 <= milliseconds <= MAX_TIME_MS:
        message = f"time is not epoch {scale.unit.name} before the year 3000"
        raise _LineError("time_out_of_range", message)
    if scale.is_far(milliseconds):
        message = "time is more than a day from the median of the log's times"
        raise _LineError("time_out_of_range", message)
    return round(milliseconds)


def _duration(value: float, unit: TimeUnit) -> int | None:
    milliseconds = unit.duration_ms(value)
    return round(milliseconds) if 0 <= milliseconds <= MAX_TIME_MS else None


def _without_content(message: str) -> str:
    """A decoder message, replaced when it contains a quotation mark: it may quote the line."""
    return message if "'" not in message and '"' not in message else "line does not fit the format"


@contextmanager
def _recursion_limit(limit: int) -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, before))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
