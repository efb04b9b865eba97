"""Scrolls: wheel events at one place and time become one gesture.

Belongs here: which wheel events belong together, reversals, touchpad momentum, and scrolls that are
too small to be an action. Units, signs and rounding are in wheel.py.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from demo_pipeline.actions.gestures import Gesture, GestureKind
from demo_pipeline.actions.inputs import distance
from demo_pipeline.actions.wheel import (
    MIN_UNIT_SCROLLS,
    UNITS_PER_NOTCH,
    WheelRule,
    is_plausible,
    parts_of_a_notch,
    wheel_rule,
)
from demo_pipeline.settings import ActionSettings

MOMENTUM_GAP_MS = 150  # longest time between two events of a touchpad's momentum
BELOW_HALF_NOTCH, UNCLEAR_UNIT = "below_half_notch", "unclear_wheel_unit"


@dataclass
class _Burst:
    """Wheel events that follow each other at one place, in both directions.

    Attributes:
        turns: the events that moved something, in time order; at least one.
        phases: events with delta 0, which mark the phases of a touchpad gesture.
    """

    turns: list[Gesture]
    phases: list[Gesture] = field(default_factory=list)

    def end(self) -> int:
        """Time of its last event, epoch milliseconds."""
        return max(event.start for event in (*self.turns[-1:], *self.phases[-1:]))


@dataclass
class _Part:
    """Wheel events of one scroll.

    Attributes:
        turns: the events.
        total: sum of their deltas.
        fits: parts of a notch of which all deltas are multiples.
        rule: how to read them.
    """

    turns: list[Gesture]
    total: float
    fits: frozenset[int]
    rule: WheelRule

    def absorbs(self, run: "_Part", *, in_pixels: bool) -> bool:
        """Add the next run if it does not reverse this part and counts in the same unit."""
        fits = self.fits & run.fits
        same_unit = in_pixels or (bool(fits) == bool(self.fits) == bool(run.fits))
        small = not self.rule.notches(self.total) or not run.rule.notches(run.total)
        if not same_unit or not (small or (self.total > 0) == (run.total > 0)):
            return False
        self.turns += run.turns
        self.total += run.total
        self.fits = fits
        return True


@dataclass(frozen=True)
class Scrolls:
    """The gestures of a recording with its wheel events joined.

    Attributes:
        gestures: in time order; a scroll has its `deltas`.
        remainder: notches that no action contains, signed as logged: what rounding leaves out and
            scrolls below half a notch.
    """

    gestures: list[Gesture]
    remainder: float


def join_scrolls(
    gestures: Sequence[Gesture],
    settings: ActionSettings,
    reasons: dict[int, str],
    *,
    in_pixels: bool,
) -> Scrolls:
    """Replace the wheel events among `gestures` (in time order) by scrolls.

    Events that become part of no scroll get a reason in `reasons`.
    """
    scrolls: list[Gesture] = []
    remainder = 0.0
    for burst in _bursts(gestures, settings, reasons, in_pixels=in_pixels):
        parts = _directions(burst.turns, settings, in_pixels=in_pixels)
        rules = [wheel_rule(_deltas(part), settings, in_pixels=in_pixels) for part in parts]
        mixed = len({rule.unit for rule in rules}) > 1
        for number, (part, rule) in enumerate(zip(parts, rules, strict=True)):
            scroll = _scroll(part, burst.phases if number == 0 else [])
            if not is_plausible(scroll.deltas, rule) or (mixed and rule.unit == "notch"):
                reasons.update(dict.fromkeys(scroll.events, UNCLEAR_UNIT))
                continue
            remainder += rule.remainder(scroll.delta)
            if rule.notches(scroll.delta):
                scrolls.append(scroll)
            else:
                reasons.update(dict.fromkeys(scroll.events, BELOW_HALF_NOTCH))
    _flag_uncertain(
        scrolls, settings, in_pixels=in_pixels, unclear=UNCLEAR_UNIT in reasons.values()
    )
    others = [gesture for gesture in gestures if gesture.kind is not GestureKind.WHEEL]
    joined = sorted([*others, *scrolls], key=lambda g: (g.start, g.index))
    return Scrolls(joined, remainder)


def _deltas(turns: Sequence[Gesture]) -> list[float]:
    return [turn.delta for turn in turns]


def _bursts(
    gestures: Sequence[Gesture],
    settings: ActionSettings,
    reasons: dict[int, str],
    *,
    in_pixels: bool,
) -> list[_Burst]:
    bursts: list[_Burst] = []
    early: list[Gesture] = []  # phases before the first movement
    interrupted = False
    for gesture in gestures:
        if gesture.kind is not GestureKind.WHEEL:
            interrupted = True
            continue
        last = bursts[-1] if bursts else None
        recent = last is not None and gesture.start - last.end() <= settings.scroll_gap_ms
        if not gesture.delta:
            (last.phases if last is not None and recent else early).append(gesture)
            continue
        if (
            last is not None
            and recent
            and (
                (not interrupted and _is_same_place(last, gesture, settings))
                or (in_pixels and _is_momentum(last, gesture))
            )
        ):
            last.turns.append(gesture)
        else:
            begun = [one for one in early if gesture.start - one.start <= settings.scroll_gap_ms]
            bursts.append(_Burst([gesture], begun))
            early = [one for one in early if one not in begun]
        interrupted = False
    reasons.update((index, "zero_delta") for one in early for index in one.events)
    return bursts


def _is_same_place(burst: _Burst, gesture: Gesture, settings: ActionSettings) -> bool:
    first, last = burst.turns[0], burst.turns[-1]
    near = distance(first, gesture) <= settings.click_radius_px
    return near and last.modifiers == gesture.modifiers


def _is_momentum(burst: _Burst, gesture: Gesture) -> bool:
    """Whether a touchpad scrolls on by itself; pointer and keys may already do something else."""
    last = burst.turns[-1]
    same_direction = (gesture.delta > 0) == (last.delta > 0)
    slowing = abs(gesture.delta) <= abs(last.delta)
    return same_direction and slowing and gesture.start - burst.end() <= MOMENTUM_GAP_MS


def _directions(
    turns: list[Gesture], settings: ActionSettings, *, in_pixels: bool
) -> list[list[Gesture]]:
    """Part a burst where it reverses. Less than half a notch is no reversal, but part of one run.

    Runs in different units are never one part.
    """
    parts: list[_Part] = []
    for run in _runs(turns):
        deltas = _deltas(run)
        rule = wheel_rule(deltas, settings, in_pixels=in_pixels)
        part = _Part(run, sum(deltas), parts_of_a_notch(deltas), rule)
        if not parts or not parts[-1].absorbs(part, in_pixels=in_pixels):
            parts.append(part)
    return [part.turns for part in parts]


def _runs(turns: list[Gesture]) -> Iterator[list[Gesture]]:
    """Yield the runs of events in one direction."""
    run: list[Gesture] = []
    for turn in turns:
        if run and (turn.delta > 0) != (run[-1].delta > 0):
            yield run
            run = []
        run.append(turn)
    yield run


def _scroll(turns: Sequence[Gesture], phases: Sequence[Gesture]) -> Gesture:
    first = turns[0]
    deltas = tuple(_deltas(turns))
    return Gesture(
        GestureKind.WHEEL,
        first.start,
        max(turn.end for turn in turns),
        first.index,
        sorted({index for event in (*turns, *phases) for index in event.events}),
        modifiers=first.modifiers,
        x=first.x,
        y=first.y,
        delta=sum(deltas),
        deltas=deltas,
    )


def _flag_uncertain(
    scrolls: list[Gesture], settings: ActionSettings, *, in_pixels: bool, unclear: bool
) -> None:
    """Flag scrolls whose unit few scrolls of the recording share; whole notches of 120 are certain.

    If the recording has scrolls in no known unit (`unclear`), its notches are uncertain as well.
    """
    units = [wheel_rule(scroll.deltas, settings, in_pixels=in_pixels).unit for scroll in scrolls]
    frequency = Counter(units)
    for scroll, unit in zip(scrolls, units, strict=True):
        documented = unit == "120" and all(delta % UNITS_PER_NOTCH == 0 for delta in scroll.deltas)
        rare = frequency[unit] < MIN_UNIT_SCROLLS and not documented
        if rare or (unclear and unit == "notch"):
            scroll.flags.add("wheel_unit_uncertain")
