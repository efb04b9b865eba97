"""Makes damaged input logs for fuzzing. The same seed gives the same logs.

This module contains the intact logs and their mutations. demo_pipeline_tests/actions/fuzzing.py
checks what must hold for the results.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from random import Random

from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.keys import Platform
from demo_pipeline_tests.simulator.recording import log_lines, log_text, perform

RECORDINGS = Path(__file__).resolve().parents[2] / "data" / "samples"
PLATFORMS: tuple[Platform, ...] = ("windows", "macos", "linux")

_EXTRA_LINES = (
    b'{"event":"mousedelta","data":{"x":-3,"y":1},"time":1741119497902}',
    b'{"event":"joystickaxis","data":{"axis":"LX","value":0.25},"time":1741119497903}',
    b'{"event":"ffmpeg_stderr","data":{"output":"start: 1741119497.9"},"time":1741119497904}',
    b'{"event":"axtree_interaction","data":{"tree":[{"name":"\xc3\xa9"}]},"time":1741119497905}',
    b'{"event":"keydown","data":{"key":"KeyQ","actual_char":"\xc3\xa9"},"time":1741119497906}',
    b'{"event":"mousewheel","data":{"delta":-1},"time":1741119497907}',
    b'{"event":"mouseup","data":{"button":"Left"},"time":1741119497908}',
    b'{"event":"keyup","data":{"key":"Unknown(95)"},"time":1741119497909}',
)
_FRAGMENTS = (
    b"NaN", b"-Infinity", b"1e999", b"-1e308", b"9" * 25, b"-0", b"0.1e-400", b"1e7", b"true",
    b"null", b"{}", b"[]", b'""', b'"', b"\\", b"\\ud800", b"\\u0000", b"\\x", b"//", b"/*", b",",
    b":", b"{", b"}", b"[", b"]", b"\r", b"\x00", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2",
    b"\xef\xbb\xbf", b"'", b"mousemove", b"mousedown", b"mouseup", b"mousewheel", b"keydown",
    b"keyup", b"axtree", b'"ShiftLeft"', b'"CapsLock"', b'"LeftCtrl"', b'"AltGr"', b'"time":0,',
    b'"data":null,', b'"event":1,', b'"x":1e300,', b'"duration":-1,', b'"delta":0,',
)  # fmt: skip
_VALUES = (
    b"null", b"true", b"0", b"-1", b"1", b"7.5", b"-0.0", b"1e3", b"4e9", b"-3e7", b"1e300", b"5",
    b"9" * 25, b"-120", b"1741119497902", b"1741119499000", b"32503680000001", b'""', b'"Left"',
    b'"Right"', b'"mousedown"', b'"mouseup"', b'"mousemove"', b'"mousewheel"', b'"keydown"',
    b'"keyup"', b'"axtree"', b'"later"', b'"A"', b'"KeyA"', b'"Backspace"', b'"Return"', b'"Shift"',
    b'"ShiftLeft"', b'"LeftCtrl"', b'"RightAlt"', b'"AltGr"', b'"MetaLeft"', b'"CapsLock"',
    b'"Numlock"', b'"Unknown(9)"', b'"\xc3\xa9"', b'"\\ud83d"', b"[]", b'{"x":1,"y":2}', b"NaN",
)  # fmt: skip


@cache
def good_logs() -> tuple[tuple[bytes, ...], ...]:
    """Returns the lines of the sample recordings, and of a script as each platform logs it."""
    logs = [
        tuple((folder / "input_log.jsonl").read_bytes().splitlines())
        for folder in sorted(RECORDINGS.iterdir())
    ]
    for placed in (False, True):
        for platform in PLATFORMS:
            chosen = replace(SMALL, platform=platform, xy_on_buttons=placed, wheel="recorder")
            lines = log_lines(perform(script(), chosen), chosen)
            logs.append(tuple(log_text(line).encode() for line in lines))
    return tuple(logs)


@cache
def good_lines() -> tuple[bytes, ...]:
    """Returns lines to damage: each short line of `good_logs`, some scans and other events."""
    distinct = set(chain.from_iterable(good_logs()))
    lines = sorted(distinct, key=lambda line: (len(line), line))
    short = [line for line in lines if len(line) < 1000]
    scans = [line for line in lines if len(line) >= 1000][:20]
    return (*short, *scans, *_EXTRA_LINES * (len(short) // 100))


def mutated_line(random: Random) -> bytes:
    """Returns a line with one to three mutations, or a hostile line. It has no line feed."""
    if random.random() < 0.05:
        return hostile_line(random)
    line = random.choice(good_lines())
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        line = random.choice(_LINE_MUTATIONS)(line, random)
    return line.replace(b"\n", b" ")


def _flip_bits(line: bytes, random: Random) -> bytes:
    damaged = bytearray(line)
    if not damaged:
        return b""
    for _ in range(random.randint(1, 4)):
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
    return bytes(damaged)


def _truncate(line: bytes, random: Random) -> bytes:
    at = random.randint(0, len(line))
    return line[:at] if random.random() < 0.7 else line[at:]


def _splice(line: bytes, random: Random) -> bytes:
    """Joins the head of a line and the tail of another line, or inserts the other line."""
    other = random.choice(good_lines())
    at = random.randint(0, len(line))
    end = random.randint(0, len(other))
    return line[:at] + (other[end:] if random.random() < 0.7 else other + line[at:])


def _insert(line: bytes, random: Random) -> bytes:
    at = random.randint(0, len(line))
    gone = random.randint(0, 8)
    return line[:at] + random.choice(_FRAGMENTS) + line[at + gone :]


def _another_value(line: bytes, random: Random) -> bytes:
    """Replaces the value after a random colon. Most results are JSON with a wrong value."""
    colons = [at for at, byte in enumerate(line[:300]) if byte == ord(":")]
    if not colons:
        return line
    at = random.choice(colons) + 1
    end = min((e for e in (line.find(b",", at), line.find(b"}", at)) if e > 0), default=len(line))
    return line[:at] + random.choice(_VALUES) + line[end:]


_LINE_MUTATIONS: tuple[Callable[[bytes, Random], bytes], ...] = (
    _flip_bits,
    _truncate,
    _splice,
    _insert,
    _another_value,
    _another_value,
    _another_value,
)


def hostile_line(random: Random) -> bytes:
    """Returns a line that breaks a careless parser: deep, huge, with repeated keys, or random."""
    kind = random.randrange(6)
    event = random.choice(("axtree", "keydown", "mousemove", "ffmpeg_stderr", "later", ""))
    if kind == 0:
        depth = random.choice((10, 600, 2_000, 20_000))
        opened, closed = random.choice((("[", "]"), ('{"a":', "}"), ('[{"children":', "}]")))
        data = opened * depth + "1" + closed * (depth if random.random() < 0.7 else 0)
        return f'{{"event":"{event}","time":5,"data":{data}}}'.encode()
    if kind == 1:
        number = random.choice(("9" * 5_000, "-" + "8" * 400, "1e" + "9" * 30, "0." + "3" * 5_000))
        return f'{{"event":"{event}","time":{number},"data":{{"x":{number},"y":1}}}}'.encode()
    if kind == 2:
        keys = "".join(f'"time":{n},"event":"{event}",' for n in range(random.randint(2, 300)))
        return f'{{{keys}"data":{{}}}}'.encode()
    if kind == 3:
        value = _hostile_value(random, 4)
        return json.dumps(
            {"event": event, "data": value, "time": _hostile_value(random, 1)}
        ).encode()
    if kind == 4:
        return random.randbytes(random.randint(0, 200)).replace(b"\n", b"")
    text = random.choice(("a", "\\u0041", "\\ud83d\\ude00", "é", "\\n")) * random.randint(0, 5_000)
    return f'{{"event":"{event}","data":{{"key":"{text}","button":"{text}"}},"time":5}}'.encode()


def _hostile_value(random: Random, levels: int) -> object:
    if levels and random.random() < 0.6:
        count = random.randint(0, 4)
        names = ("x", "y", "key", "button", "delta", "duration", "tree", "actual_char", "", "é")
        if random.random() < 0.3:
            return [_hostile_value(random, levels - 1) for _ in range(count)]
        return {random.choice(names): _hostile_value(random, levels - 1) for _ in range(count)}
    values = (None, True, 0, -1, 2**63, 2**70, 1.5, -1e300, float("nan"), "", "Left", "\ud800", "A")
    return random.choice(values)


def mutated_log(random: Random) -> bytes:
    """Returns a part of a log with up to five mutations, such as lost or duplicated lines."""
    log = random.choice(good_logs())
    begin = random.randrange(len(log))
    lines = list(log[begin : begin + random.randint(1, 400)])
    for _ in range(random.randint(0, 5)):
        lines = random.choice(_LOG_MUTATIONS)(lines, random)
    end = b"\r\n" if random.random() < 0.1 else b"\n"
    text = end.join(lines) + (end if random.random() < 0.7 else b"")
    if random.random() < 0.1:
        text = b"\xef\xbb\xbf" + text
    if random.random() < 0.1:
        text = text[: random.randint(0, len(text))]
    return text


def _damage(lines: list[bytes], random: Random) -> list[bytes]:
    share = random.choice((0.01, 0.1, 0.5))
    damaged = []
    for line in lines:
        if random.random() < share:
            damaged.append(mutated_line(random))
        else:
            damaged.append(line)
    return damaged


def _lose(lines: list[bytes], random: Random) -> list[bytes]:
    """Drops random lines, or all lines of one event type."""
    if random.random() < 0.5:
        kind = random.choice((b"mouseup", b"mousedown", b"keyup", b"keydown", b"mousemove"))
        return [line for line in lines if kind not in line[:40]]
    share = random.choice((0.02, 0.3))
    return [line for line in lines if random.random() >= share]


def _duplicate(lines: list[bytes], random: Random) -> list[bytes]:
    """Repeats all or some lines once or twice, as with several input hooks."""
    times = random.randint(2, 3)
    share = random.choice((0.1, 1.0))
    repeated = []
    for line in lines:
        copies = times if random.random() < share else 1
        repeated += [line] * copies
    return repeated


def _move(lines: list[bytes], random: Random) -> list[bytes]:
    """Delays lines by random distances, as if they had been written late."""
    reach = random.choice((3, 30, len(lines) + 1))
    late = [(at + random.randrange(reach), at, line) for at, line in enumerate(lines)]
    return [line for _, _, line in sorted(late)]


def _retime(lines: list[bytes], random: Random) -> list[bytes]:
    """Changes all times: they stand still, jump, run backwards, or pass the last valid date."""
    rule = random.choice(("still", "jump", "back", "far", "fast"))
    start = random.choice((0, 5, 1_741_119_497_902))
    at = random.randrange(len(lines) + 1)
    return [_at_time(line, _time(rule, start, n, at)) for n, line in enumerate(lines)]


def _time(rule: str, start: int, number: int, at: int) -> int:
    times = {
        "still": start,
        "jump": start + number * 8 + (86_400_000 if number >= at else 0),
        "back": max(0, start - number * 8),
        "far": 32_503_680_000_000 - at + number,
        "fast": start + number,
    }
    return times[rule]


def _at_time(line: bytes, time: int) -> bytes:
    head, name, _ = line.rpartition(b'"time":')
    return head + name + b"%d}" % time if name else line


def _mix(lines: list[bytes], random: Random) -> list[bytes]:
    """Inserts a part of another recording, possibly from another platform."""
    other: Sequence[bytes] = random.choice(good_logs())
    at = random.randrange(len(lines) + 1)
    begin = random.randrange(len(other))
    return [*lines[:at], *other[begin : begin + random.randint(1, 60)], *lines[at:]]


_LOG_MUTATIONS: tuple[Callable[[list[bytes], Random], list[bytes]], ...] = (
    _damage,
    _lose,
    _duplicate,
    _move,
    _retime,
    _mix,
)
