"""Tests that the parser returns a row for every line, and a reason for each rejected line."""

import io
import json
import string
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from demo_pipeline.recording.input_log import Event, Rejected, parse_log
from demo_pipeline.recording.key_names import read_typed_character

MOVE = b'{"event":"mousemove","data":{"x":1,"y":2},"time":1700000000000}'


def parse(log: bytes, **options: Any) -> list[Event | Rejected]:
    return list(parse_log(io.BytesIO(log), **options))


def accepted(log: bytes, **options: Any) -> Event:
    [item] = parse(log, **options)
    assert isinstance(item, Event), item
    return item


def refused(log: bytes, **options: Any) -> Rejected:
    [item] = parse(log, **options)
    assert isinstance(item, Rejected), item
    return item


def logged(event: str, time: Any = 1_700_000_000_000, **data: Any) -> bytes:
    return json.dumps({"event": event, "data": data, "time": time}).encode()


# --- lines and offsets


def test_lines_are_numbered_and_placed():
    log = MOVE + b"\n\nno json\n" + MOVE + b"\r\n" + MOVE[:20]
    numbers = [
        (i.event_index, i.byte_offset, i.byte_length) for i in parse(log) if isinstance(i, Event)
    ]
    assert numbers == [(1, 0, len(MOVE)), (4, len(MOVE) + 10, len(MOVE))]
    bad = [
        (i.line, i.byte_offset, i.byte_length, i.code)
        for i in parse(log)
        if isinstance(i, Rejected)
    ]
    assert bad == [
        (2, len(MOVE) + 1, 0, "blank_line"),
        (3, len(MOVE) + 2, 7, "invalid_json"),
        (5, 2 * len(MOVE) + 12, 20, "invalid_json"),
    ]
    for item in parse(log):
        start = item.byte_offset
        length = item.byte_length
        assert log[start : start + length] in {MOVE, b"", b"no json", MOVE[:20]}


def test_a_byte_order_mark_is_not_part_of_a_line():
    item = accepted(b"\xef\xbb\xbf" + MOVE + b"\r\n")
    assert (item.byte_offset, item.byte_length) == (3, len(MOVE))


def test_the_last_line_needs_no_end():
    assert len(parse(MOVE + b"\n" + MOVE)) == 2
    assert len(parse(MOVE + b"\n" + MOVE + b"\n")) == 2
    assert parse(b"") == []


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_longest_line_allowed(end):
    assert accepted(MOVE + end, max_line_bytes=len(MOVE)).x == 1
    long = refused(MOVE + end, max_line_bytes=len(MOVE) - 1)
    assert (long.code, long.byte_offset, long.byte_length) == ("line_too_long", 0, len(MOVE))


def test_a_line_far_too_long_costs_only_itself():
    log = MOVE + b"\n" + b"x" * 3_000_000 + b"\r\n" + MOVE + b"\n"
    first, long, last = parse(log, max_line_bytes=100)
    assert isinstance(first, Event)
    assert isinstance(long, Rejected)
    assert (long.line, long.byte_offset, long.byte_length) == (2, len(MOVE) + 1, 3_000_000)
    assert isinstance(last, Event)
    assert (last.event_index, last.byte_offset) == (3, len(MOVE) + 3_000_003)


# --- accepted deviations from the format


@pytest.mark.parametrize("event", ["mousedown", "mouseup"])
def test_buttons_without_a_position(event):
    item = accepted(logged(event, button="Left"))
    assert (item.button, item.x, item.y) == ("Left", None, None)


def test_half_a_position_is_no_position():
    item = accepted(logged("mousedown", button="Left", x=5))
    assert (item.x, item.y) == (None, None)


def test_fractional_and_negative_points():
    item = accepted(b'{"event":"mousemove","data":{"x":1.0,"y":-20.5},"time":5.0}')
    assert (item.x, item.y, item.time_ms) == (1.0, -20.5, 5)


def test_unknown_fields_are_ignored():
    text = b'{"v":2,"event":"keydown","data":{"key":"A","scan":[1,{}],"actual_char":"a"},"time":5}'
    item = accepted(text)
    assert (item.key, item.actual_char) == ("A", "a")


@pytest.mark.parametrize("event", ["mousedelta", "ffmpeg_stderr", "tomorrow"])
def test_undocumented_events_keep_their_payload(event):
    data = {"x": "left", "delta": [1, 2], "text": 'start: 1700000000.5 "é"', "nest": {"a": None}}
    item = accepted(logged(event, **data))
    assert item.event == event
    assert item.payload is not None
    assert json.loads(item.payload) == data
    assert (item.x, item.delta) == (None, None)


@pytest.mark.parametrize(
    ("data", "duration"), [({"tree": {}}, None), ({"duration": -4}, None), ({"duration": 2.6}, 3)]
)
def test_scans_with_odd_durations(data, duration):
    assert accepted(logged("axtree", **data)).duration_ms == duration


def nested(levels: int, event: str = "axtree") -> bytes:
    """Returns a scan with a tree of this depth. Each level of the tree takes two levels of JSON."""
    tree = b'[{"role":"Pane","children":' * levels + b"[]" + b"}]" * levels
    return b'{"event":"%s","data":{"duration":9,"tree":%s},"time":5}' % (event.encode(), tree)


@pytest.mark.parametrize("levels", [1, 400, 490])
def test_deep_trees(levels):
    assert accepted(nested(levels)).duration_ms == 9


def test_a_deeper_tree_is_rejected_with_its_line_whoever_reads_it():
    """The limit does not depend on the caller's depth of recursion, which is high in Dagster."""

    def below(calls: int) -> list[Event | Rejected]:
        log = MOVE + b"\n" + nested(490) + b"\n" + nested(491) + b"\n"
        return below(calls - 1) if calls else list(parse(log))

    assert below(0) == below(400)
    move, scan, rejected = below(0)
    assert isinstance(move, Event)
    assert isinstance(scan, Event)
    assert isinstance(rejected, Rejected)
    assert (rejected.line, rejected.code) == (3, "nested_too_deeply")
    assert "a tree of more than 490 levels" in rejected.message


def test_a_short_line_with_too_many_elements_is_rejected():
    """An empty element takes three bytes in the log, but a hundred times as much in memory."""

    def scan(elements: int) -> bytes:
        tree = ",".join(["{}"] * elements)
        return f'{{"event":"axtree","data":{{"tree":[{tree}]}},"time":5}}'.encode()

    assert isinstance(accepted(scan(150_000)), Event)
    assert refused(scan(200_000)).code == "too_many_elements"


def test_deep_payloads_of_undocumented_events():
    item = accepted(nested(400, "axtree_interaction"))
    assert item.payload is not None
    assert item.payload.count("children") == 400


def test_endless_nesting_is_rejected_and_the_rest_is_read():
    log = nested(200_000) + b"\n" + b'{"event":"axtree","time":5,"data":' + b"[" * 500_000 + b"\n"
    first, second, last = parse(log + MOVE)
    assert isinstance(first, Rejected)
    assert isinstance(second, Rejected)
    assert {first.code, second.code} == {"nested_too_deeply"}
    assert isinstance(last, Event)


# --- rejected lines


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"   ", "blank_line"),
        (b"{", "invalid_json"),
        (MOVE + MOVE, "invalid_json"),
        (MOVE.replace(b'"x":1', b'"x":NaN'), "invalid_json"),
        (MOVE.replace(b'"x":1', b'"x":Infinity'), "invalid_json"),
        (MOVE.replace(b'"x":1', b'"x":1e999'), "wrong_type"),
        (MOVE.replace(b'"x":1', b'"x":' + b"9" * 40), "value_out_of_range"),
        (MOVE.replace(b"1700000000000", b"9" * 40), "time_out_of_range"),
        (MOVE.replace(b"1700000000000", b"-1"), "time_out_of_range"),
        (MOVE.replace(b"1700000000000", b'"1700000000000"'), "wrong_type"),
        (MOVE.replace(b"1700000000000", b"null"), "wrong_type"),
        (MOVE.replace(b'"x":1', b'"x":"1"'), "wrong_type"),
        (MOVE.replace(b'"x":1', b'"x":true'), "wrong_type"),
        (MOVE.replace(b"mousemove", b"mouse\xffmove"), "invalid_utf8"),
        (b"[1,2]", "wrong_type"),
        (b"null", "wrong_type"),
        (b'{"data":{},"time":5}', "wrong_type"),
        (b'{"event":"keydown","data":{"key":"A"}}', "wrong_type"),
        (b'{"event":"keydown","data":[],"time":5}', "wrong_type"),
        (b'{"event":"keydown","data":{},"time":5}', "missing_field"),
        (b'{"event":"keydown","data":{"key":""},"time":5}', "missing_field"),
        (b'{"event":"keydown","time":5}', "missing_field"),
        (b'{"event":"mousemove","data":{"x":5},"time":5}', "missing_field"),
        (b'{"event":"mousedown","data":{"x":5,"y":5},"time":5}', "missing_field"),
        (MOVE.replace(b'"x":1', b'"raw_y":2,"raw_x":1e8,"x":1'), "value_out_of_range"),
        (b'{"event":"mousewheel","data":{},"time":5}', "missing_field"),
        (b'{"event":"mousewheel","data":{"delta":1e9},"time":5}', "value_out_of_range"),
        (b"\x00\x00\x00", "invalid_json"),
    ],
)
def test_rejections_name_their_reason(line, code):
    item = refused(line)
    assert (item.code, item.line, item.byte_offset, item.byte_length) == (code, 1, 0, len(line))
    assert item.message


@pytest.mark.parametrize("half", [b"\\ud83d", b"\\uD83D", "\ud83d".encode(errors="surrogatepass")])
@pytest.mark.parametrize(
    "fields",
    [
        b'"actual_char":"HALF","key":"A"',
        b'"key":"HALF"',
        b'"key": "HALF", "actual_char": null',
        b'"actual_char":null,"key":"HALF"',
        b'"key":"HALF","actual_char":"HALF"',
    ],
)
def test_half_an_emoji_is_an_event(half, fields):
    line = b'{"event":"keydown","data":{%s},"time":5}' % fields.replace(b"HALF", half)
    event = accepted(line)
    assert event.key == ("A" if b'"A"' in fields else "Unknown(0)")
    assert event.byte_length == len(line)
    assert read_typed_character(event.actual_char).half == "\ud83d"
    assert refused(line.replace(b"keydown", b"other")).code in {"invalid_utf8", "wrong_type"}


TYPED = "hunter2swordfish"


@pytest.mark.parametrize(
    "line",
    [
        f'{{"event":"keydown","data":{{"key":{{"{TYPED}":1}}}},"time":5}}',
        f'{{"event":"keydown","data":{{"key":"A"}},"time":"{TYPED}"}}',
        f'{{"event":"keydown","data":{{"key":"{TYPED}',
        f'{{"event":"{TYPED}","data":{{}},"time":null}}',
        TYPED,
    ],
)
def test_rejections_never_quote_the_line(line):
    assert TYPED not in refused(line.encode()).message


# --- arbitrary bytes


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=300))
@example(b"\xef\xbb\xbf")
@example(b"\r\r\n\n\r")
@example(b"\n" * 5)
def test_any_bytes_give_one_row_per_line(log):
    check_rows(log)


KEYS = st.sampled_from(["event", "data", "time", "x", "y", "key", "button", "delta", "duration"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(string.printable)
    | st.sampled_from(["mousemove", "keydown", "axtree", "mousewheel", "mouseup"]),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(KEYS, JSON), max_size=3), st.data())
def test_hostile_json_gives_one_row_per_line(lines, data):
    log = bytearray("\n".join(map(json.dumps, lines)).encode())
    for _ in range(data.draw(st.integers(0, 3))):
        if log:
            log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    check_rows(bytes(log))


def check_rows(log: bytes) -> None:
    expected = log.count(b"\n") + (not log.endswith(b"\n") and bool(log))
    for limit in (8, 10_000):
        rows = parse(log, max_line_bytes=limit)
        numbers = []
        for row in rows:
            numbers.append(row.event_index if isinstance(row, Event) else row.line)
            assert b"\n" not in log[row.byte_offset : row.byte_offset + row.byte_length]
        assert numbers == list(range(1, expected + 1))


def test_a_tree_that_would_take_a_gigabyte_is_rejected_with_a_message():
    """The line has 120,000 elements and about 30 MB; the largest known scan has 4 MB."""
    element = b'{"role": "button", "name": "' + b"x" * 200 + b'", "children": []}'
    tree = b"[" + b",".join([element] * 120_000) + b"]"
    line = b'{"event": "axtree", "time": 1700000000000, "data": {"tree": ' + tree + b"}}"
    rejection = refused(line)
    assert rejection.code == "line_too_long"
    assert "more than any tree of a screen" in rejection.message
