"""The timeline of a demonstration: its actions, repairs, rejected lines and event accounting.

Belongs here: reading these from the committed tables, and printing them for people who check an
action. It changes nothing and contains no typed characters.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
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
from demo_pipeline.actions.scrolls import Vertical, positive_direction
from demo_pipeline.files.parquet import read_table
from demo_pipeline.problems import Problem
from demo_pipeline.recording.events import read_events, rejected_lines
from demo_pipeline.recording.key_names import public_name
from demo_pipeline.recording.log_events import BUTTON_EVENTS, POINTER_EVENTS
from demo_pipeline.recording.manifest import RecordingManifest

_REPAIRS = {
    "phantom_modifier": "duplicate releases of a modifier, logged as presses: dropped",
    "release_without_press": "releases without a press: dropped",
    "zero_delta": "wheel events with delta 0: dropped",
    "typed_and_erased": "events of text that was typed and erased: left out",
    "stop_shortcut": "events of the shortcut that stopped the recorder: left out",
    "held_with_button": "events of keys held while a mouse button was down: no typing",
    "modifier_never_released": "events of modifiers that were never released: ignored",
}
_FLAGS = {
    "never_released": "button presses without a release: treated as clicks",
    "modifier_never_released": "actions whose modifier was never released: treated as released",
    "key_held": "drags with another key held than a modifier: the action does not name it",
    "end_points_only": "drags without logged moves: only start and end are known",
}


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One action of the timeline.

    Attributes:
        number: its action_index.
        seconds: time of the press, counted from meta.timestamp.
        pre_move_seconds: the same for the first move that leads to it; None without moves.
        description: of the action, without typed characters.
        flags: what was unusual.
        raw_events: number of its log lines.
    """

    number: int
    seconds: float
    pre_move_seconds: float | None
    description: str
    flags: tuple[str, ...]
    raw_events: int


@dataclass(frozen=True, slots=True)
class BucketCount:
    """Number of log lines in a bucket for one reason; the reason may be empty."""

    bucket: str
    reason: str
    lines: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """What happened in a demonstration.

    Attributes:
        demonstration: its id.
        headline: platform, time of the recording, status.
        title: of the task, from the metadata.
        entries: the actions and pauses in time order.
        duplicate_factors: event kind → how often each event was logged, where more than once.
        repairs: one line of text for each kind of repair.
        rejected: the first hundred lines that could not be read.
        rejected_total: number of lines that could not be read.
        accounting: counts in the order of `BUCKETS`, then by reason; they add up to `lines`.
        lines: number of lines of the log.
        unknown_keys: name → presses; names that may be typed characters are replaced.
        wheel: sign and unit of the wheel and how they were decided; empty without wheel events.
    """

    demonstration: str
    headline: str
    title: str
    entries: tuple[TimelineEntry, ...]
    duplicate_factors: Mapping[str, float]
    repairs: tuple[str, ...]
    rejected: tuple[Problem, ...]
    rejected_total: int
    accounting: tuple[BucketCount, ...]
    lines: int
    unknown_keys: Mapping[str, int]
    wheel: str


def build_timeline(
    events_folder: Path, actions_folder: Path, manifest: RecordingManifest
) -> Timeline:
    """Read the timeline from the outputs of the `events` and `actions` stages.

    `manifest` is that of the recording; seconds are counted from its meta.timestamp.
    """
    events = read_events(events_folder)
    accounting = read_table(actions_folder / ACCOUNTING_FILE, ACCOUNTING_SCHEMA)
    actions = read_actions(actions_folder)
    reasons = dict(
        zip(accounting["event_index"].to_pylist(), accounting["reason"].to_pylist(), strict=True)
    )
    factors, duplicates = _duplicates(events, reasons)
    counts = _bucket_counts(accounting)
    return Timeline(
        demonstration=manifest.id,
        headline=_headline(manifest),
        title=manifest.parsed_meta().title,
        entries=tuple(_entries(actions, manifest.recorded_at.timestamp())),
        duplicate_factors=factors,
        repairs=(*duplicates, *_repairs(events, reasons, actions)),
        rejected=tuple(rejected_lines(events_folder)),
        rejected_total=sum(count.lines for count in counts if count.bucket == "rejected"),
        accounting=counts,
        lines=accounting.num_rows,
        unknown_keys=_unknown_keys(events, reasons),
        wheel=_wheel(actions),
    )


def _headline(manifest: RecordingManifest) -> str:
    meta = manifest.parsed_meta()
    status = f"{meta.status or 'no status'} ({meta.reason})" if meta.reason else meta.status
    parts = [meta.platform, f"{manifest.recorded_at:%Y-%m-%d %H:%M:%S} UTC", status]
    return ", ".join(filter(None, parts))


def _entries(actions: Iterable[Action], origin: float) -> Iterable[TimelineEntry]:
    for action in actions:
        pre_move = action.pre_move_ms
        yield TimelineEntry(
            number=action.action_index,
            seconds=round(action.press_ms / 1000 - origin, 3),
            pre_move_seconds=None if pre_move is None else round(pre_move / 1000 - origin, 3),
            description="+".join([*action.modifiers, action.describe()]),
            flags=tuple(action.flags),
            raw_events=len(action.events),
        )


def _duplicates(events: pa.Table, reasons: Mapping[int, str]) -> tuple[dict[str, float], list[str]]:
    """How often each event of a kind was logged, where more than once, and a line of text each."""
    kinds: Counter[str] = Counter(events["event"].to_pylist())
    dropped = Counter(_by_reason(events, "event", reasons, "hook_copy"))
    factors = {
        kind: round(kinds[kind] / (kinds[kind] - dropped[kind]), 2) for kind in sorted(dropped)
    }
    texts = [
        f"{dropped[kind]} duplicates of {kind}: dropped (each logged {factor:g} times)"
        for kind, factor in factors.items()
    ]
    return factors, texts


def _by_reason(events: pa.Table, column: str, reasons: Mapping[int, str], reason: str) -> list[str]:
    """Values of `column` of the events that have this reason in the event accounting."""
    rows = zip(events["event_index"].to_pylist(), events[column].to_pylist(), strict=True)
    return [value for index, value in rows if reasons[index] == reason]


def _repairs(
    events: pa.Table, reasons: Mapping[int, str], actions: Iterable[Action]
) -> Iterable[str]:
    late = late_lines(inputs_of(events))
    if late:
        yield f"{late} input events logged after a later one: sorted by time"
    filled = _filled_positions(events, reasons)
    if filled:
        yield f"{filled} presses and releases without a position: taken from the moves around them"
    counts = Counter(reasons.values())
    yield from (f"{counts[reason]} {text}" for reason, text in _REPAIRS.items() if counts[reason])
    flags = Counter(flag for action in actions for flag in action.flags)
    yield from (f"{flags[flag]} {text}" for flag, text in _FLAGS.items() if flags[flag])


def _filled_positions(events: pa.Table, reasons: Mapping[int, str]) -> int:
    rows = zip(*(events[name].to_pylist() for name in ("event_index", "event", "x")), strict=True)
    without_position, any_position = 0, False
    for index, kind, x in rows:
        if kind in POINTER_EVENTS and x is not None:
            any_position = True
        elif kind in BUTTON_EVENTS and reasons[index] != "hook_copy":
            without_position += 1
    return without_position if any_position else 0


def _unknown_keys(events: pa.Table, reasons: Mapping[int, str]) -> dict[str, int]:
    names = Counter(map(public_name, _by_reason(events, "key", reasons, "unknown_key")))
    return dict(sorted(names.items()))


def _bucket_counts(accounting: pa.Table) -> tuple[BucketCount, ...]:
    pairs = zip(accounting["bucket"].to_pylist(), accounting["reason"].to_pylist(), strict=True)
    counts = [BucketCount(*pair, lines) for pair, lines in Counter(pairs).items()]
    return tuple(sorted(counts, key=lambda count: (BUCKETS.index(count.bucket), count.reason)))


def _wheel(actions: Iterable[Action]) -> str:
    for action in actions:
        if action.wheel_sum is not None:
            direction: Vertical = "up" if action.direction == "up" else "down"
            positive = positive_direction(action.wheel_sum, direction)
            return f"positive = {positive}, unit {action.wheel_unit}, by {action.wheel_method}"
    return ""


_MAX_REJECTED = 20  # rejected lines that are printed


def render(timeline: Timeline) -> list[str]:
    """Lines of plain text, without markup and without typed characters."""
    return [
        f"{timeline.demonstration}: {timeline.headline}",
        *([timeline.title] if timeline.title else []),
        "",
        *_entry_lines(timeline),
        "",
        *_section("Repairs", timeline.repairs),
        "",
        *_section(f"Rejected lines: {timeline.rejected_total}", tuple(_rejected(timeline)), ""),
        "",
        f"Event accounting: {timeline.lines} lines",
        *_accounting(timeline.accounting),
        "",
        f"Wheel: {timeline.wheel or 'not used'}",
        f"Unknown keys: {_unknown_key_lines(timeline)}",
    ]


def _section(heading: str, lines: tuple[str, ...], if_empty: str = "none") -> Iterator[str]:
    yield heading if lines or not if_empty else f"{heading}: {if_empty}"
    yield from (f"  {line}" for line in lines)


def _entry_lines(timeline: Timeline) -> Iterator[str]:
    actions = sum(entry.raw_events > 0 for entry in timeline.entries)
    yield f"Actions: {actions}, pauses: {len(timeline.entries) - actions}"
    if not timeline.entries:
        return
    yield f"{'#':>5}{'second':>10}{'pre-move':>10}{'events':>8}  action"
    for entry in timeline.entries:
        pre_move = "" if entry.pre_move_seconds is None else f"{entry.pre_move_seconds:.3f}"
        flags = f"  [{', '.join(entry.flags)}]" if entry.flags else ""
        events = entry.raw_events or ""
        yield (
            f"{entry.number:>5}{entry.seconds:>10.3f}{pre_move:>10}{events:>8}"
            f"  {entry.description}{flags}"
        )


def _rejected(timeline: Timeline) -> Iterator[str]:
    shown = timeline.rejected[:_MAX_REJECTED]
    yield from (f"{problem.location}: {problem.message}" for problem in shown)
    more = timeline.rejected_total - len(shown)
    if more:
        yield f"and {more} more"


def _accounting(counts: tuple[BucketCount, ...]) -> Iterator[str]:
    for bucket in BUCKETS:
        of_bucket = [count for count in counts if count.bucket == bucket]
        reasons = ", ".join(f"{count.reason} {count.lines}" for count in of_bucket if count.reason)
        lines = sum(count.lines for count in of_bucket)
        yield f"  {bucket:<16}{lines:>8}  {reasons}".rstrip()


def _unknown_key_lines(timeline: Timeline) -> str:
    return ", ".join(f"{name} ({n})" for name, n in timeline.unknown_keys.items()) or "none"
