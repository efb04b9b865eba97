"""What happened in a demonstration, told from the committed tables: actions, repairs, ledger.

Belongs here: what a person asks when an action looks wrong. It reads files and changes none, and
says nothing that was typed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from demo_pipeline.actions.action_tables import (
    ACCOUNTING_FILE,
    ACCOUNTING_SCHEMA,
    BUCKETS,
    Action,
    read_actions,
)
from demo_pipeline.actions.inputs import inputs_of, late_lines
from demo_pipeline.actions.wheel import Vertical, positive_direction
from demo_pipeline.formats.demonstration.event_types import BUTTON_EVENTS, POINTER_EVENTS
from demo_pipeline.problems import Problem
from demo_pipeline.recording.event_tables import read_table
from demo_pipeline.recording.events import read_events, rejected_lines
from demo_pipeline.recording.key_names import public_name
from demo_pipeline.recording.manifest import RecordingManifest

_REPAIRS = {
    "phantom_modifier": "second releases of a modifier, logged as presses: dropped",
    "release_without_press": "releases without a press: dropped",
    "zero_delta": "wheel turns by nothing: dropped",
    "typed_and_erased": "events of text that was typed and erased again",
    "stop_shortcut": "events of the keys that stopped the recorder: left out",
    "modifier_never_released": "events of modifiers that never came up: ignored",
}
_FLAGS = {
    "never_released": "presses of a button that never came up: taken as clicks",
    "modifier_never_released": "actions with a modifier that never came up: let go after them",
    "end_points_only": "drags without moves: known by their ends",
}


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One action on the time line.

    Attributes:
        number: its action_index.
        seconds: of the press, after meta.timestamp.
        pre_move_seconds: the same of the first move towards it; None without one.
        what: the action in words that give away no typed text.
        flags: what was unusual.
        raw_events: how many log lines it is made of.
    """

    number: int
    seconds: float
    pre_move_seconds: float | None
    what: str
    flags: tuple[str, ...]
    raw_events: int


@dataclass(frozen=True, slots=True)
class BucketCount:
    """How many log lines ended in a bucket for one reason; the reason may be empty."""

    bucket: str
    reason: str
    lines: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """A demonstration's story.

    Attributes:
        headline: platform, when it was recorded, how it ended.
        title: of the task, from the metadata.
        moments: the actions and pauses in time order.
        copy_factors: event kind → how often each event was logged, where more than once.
        repairs: one sentence each.
        rejected: the first hundred lines that could not be read.
        rejected_total: how many there were.
        ledger: sums in the order of `BUCKETS`, then by reason; they add up to `lines`.
        lines: of the log.
        unknown_keys: name → presses; names that may be text are not given.
        wheel: the rule by which the wheel was read; empty when it was not turned.
    """

    demonstration: str
    headline: str
    title: str
    moments: tuple[TimelineEntry, ...]
    copy_factors: Mapping[str, float]
    repairs: tuple[str, ...]
    rejected: tuple[Problem, ...]
    rejected_total: int
    ledger: tuple[BucketCount, ...]
    lines: int
    unknown_keys: Mapping[str, int]
    wheel: str


def build_timeline(
    events_folder: Path, actions_folder: Path, manifest: RecordingManifest
) -> Timeline:
    """Read the outputs of the `events` and `actions` stages and tell what they hold.

    `manifest` is that of `raw_recordings`; its meta.timestamp is where the seconds count from.
    """
    events = read_events(events_folder)
    ledger = read_table(actions_folder / ACCOUNTING_FILE, ACCOUNTING_SCHEMA)
    actions = read_actions(actions_folder)
    reasons = dict(
        zip(ledger["event_index"].to_pylist(), ledger["reason"].to_pylist(), strict=True)
    )
    factors, copies = _copies(events, reasons)
    sums = _ledger_sums(ledger)
    return Timeline(
        demonstration=manifest.id,
        headline=_headline(manifest),
        title=manifest.parsed_meta().title,
        moments=tuple(_moments(actions, manifest.recorded_at.timestamp())),
        copy_factors=factors,
        repairs=(*copies, *_repairs(events, reasons, actions)),
        rejected=tuple(rejected_lines(events_folder)),
        rejected_total=sum(one.lines for one in sums if one.bucket == "rejected"),
        ledger=sums,
        lines=ledger.num_rows,
        unknown_keys=_unknown_keys(events, reasons),
        wheel=_wheel(actions),
    )


def _headline(manifest: RecordingManifest) -> str:
    meta = manifest.parsed_meta()
    ended = f"{meta.status or 'no status'} ({meta.reason})" if meta.reason else meta.status
    parts = [meta.platform, f"{manifest.recorded_at:%Y-%m-%d %H:%M:%S} UTC", ended]
    return ", ".join(filter(None, parts))


def _moments(actions: Iterable[Action], origin: float) -> Iterable[TimelineEntry]:
    for action in actions:
        approach = action.pre_move_ms
        yield TimelineEntry(
            number=action.action_index,
            seconds=round(action.press_ms / 1000 - origin, 3),
            pre_move_seconds=None if approach is None else round(approach / 1000 - origin, 3),
            what="+".join([*action.modifiers, action.describe()]),
            flags=tuple(action.flags),
            raw_events=len(action.events),
        )


def _copies(events: pa.Table, reasons: Mapping[int, str]) -> tuple[dict[str, float], list[str]]:
    """The copy factor of each event kind that was logged more than once, and a sentence each."""
    kinds: Counter[str] = Counter(events["event"].to_pylist())
    dropped = Counter(_by_reason(events, "event", reasons, "hook_copy"))
    factors = {
        kind: round(kinds[kind] / (kinds[kind] - dropped[kind]), 2) for kind in sorted(dropped)
    }
    told = [
        f"{dropped[kind]} copies of {kind}: dropped ({factor:g} a real one)"
        for kind, factor in factors.items()
    ]
    return factors, told


def _by_reason(events: pa.Table, column: str, reasons: Mapping[int, str], wanted: str) -> list[str]:
    """`column` of the events that the ledger gives the reason `wanted`."""
    rows = zip(events["event_index"].to_pylist(), events[column].to_pylist(), strict=True)
    return [value for index, value in rows if reasons[index] == wanted]


def _repairs(
    events: pa.Table, reasons: Mapping[int, str], actions: Iterable[Action]
) -> Iterable[str]:
    late = late_lines(inputs_of(events))
    if late:
        yield f"{late} inputs written after later ones: put in the order of their times"
    joined = _joined_positions(events, reasons)
    if joined:
        yield f"{joined} presses and releases without a position: taken from the moves around them"
    found = Counter(reasons.values())
    yield from (f"{found[reason]} {told}" for reason, told in _REPAIRS.items() if found[reason])
    flags = Counter(flag for action in actions for flag in action.flags)
    yield from (f"{flags[flag]} {told}" for flag, told in _FLAGS.items() if flags[flag])


def _joined_positions(events: pa.Table, reasons: Mapping[int, str]) -> int:
    rows = zip(*(events[name].to_pylist() for name in ("event_index", "event", "x")), strict=True)
    bare, placed = 0, False
    for index, kind, x in rows:
        if kind in POINTER_EVENTS and x is not None:
            placed = True
        elif kind in BUTTON_EVENTS and reasons[index] != "hook_copy":
            bare += 1
    return bare if placed else 0


def _unknown_keys(events: pa.Table, reasons: Mapping[int, str]) -> dict[str, int]:
    found = Counter(map(public_name, _by_reason(events, "key", reasons, "unknown_key")))
    return dict(sorted(found.items()))


def _ledger_sums(ledger: pa.Table) -> tuple[BucketCount, ...]:
    pairs = zip(ledger["bucket"].to_pylist(), ledger["reason"].to_pylist(), strict=True)
    sums = [
        BucketCount(bucket, reason, lines) for (bucket, reason), lines in Counter(pairs).items()
    ]
    return tuple(sorted(sums, key=lambda one: (BUCKETS.index(one.bucket), one.reason)))


def _wheel(actions: Iterable[Action]) -> str:
    for action in actions:
        if action.wheel_sum is not None:
            direction: Vertical = "up" if action.direction == "up" else "down"
            positive = positive_direction(action.wheel_sum, direction)
            return f"positive = {positive}, unit {action.wheel_unit}, by {action.wheel_method}"
    return ""
