"""Scrolls: what a wheel's deltas mean, which way they go, and which wheel events are one scroll.

Recorders write deltas in three units and two signs. Three steps decide the direction of a scroll:
`wheel_rule` reads unit and sign from a scroll's deltas, the platform and the settings;
`count_votes` counts in how many scrolls the video shows each sign; `scroll_direction` takes the
direction that the video shows, else the rule's. Content that moves in the video is measured in
observation/frames/scroll_motion.py.

Belongs here also: which wheel events belong together, reversals, touchpad momentum, and scrolls
that are too small to be an action.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import copysign, floor
from typing import Literal

from demo_pipeline.actions.inputs import Gesture, GestureKind, distance
from demo_pipeline.settings import ActionSettings

UNITS_PER_NOTCH = 120  # WHEEL_DELTA: what Windows counts for one detent
# What fine wheels and touchpads send at a time. Below 10, the delta may as well count notches.
PARTS_OF_A_NOTCH = (120, 60, 40, 30, 24, 20, 15, 12, 10)
MAX_EVENT_NOTCHES = 10  # one event of a wheel that spins freely has fewer
MIN_UNIT_SCROLLS = 3  # scrolls of a recording in one unit; with fewer the unit is uncertain
MAX_NOTCHES = 2**31 - 1  # the column `amount` has 32 bits
_DECIMALS = 6  # of notches: sums of fractions are not exact
MIN_VOTE_SHARE = 0.75  # of the votes, and of a scroll's moving frames, must agree
MIN_SIDEWAYS_FRAMES = 2  # horizontal scrolls are rare: one moving frame is not evidence
OVERRIDE, EVIDENCE = "override", "evidence"  # of the values of `wheel_method`

Vertical = Literal["up", "down"]
Horizontal = Literal["left", "right"]
Direction = Literal["up", "down", "left", "right"]
_OPPOSITE: Mapping[str, Direction] = {"up": "down", "down": "up", "left": "right", "right": "left"}


@dataclass(frozen=True)
class _WheelRule:
    """How to read the wheel deltas of a scroll.

    Attributes:
        unit: of the raw delta: 120ths of a notch, notches, or pixels.
        positive: the direction in which a positive delta scrolls.
        method: `override` (a setting) or `unit_signature`.
        per_notch: raw units in one notch.
    """

    unit: Literal["120", "notch", "pixel"]
    positive: Vertical
    method: str
    per_notch: float

    def direction(self, delta: float) -> Vertical:
        """The direction in which `delta` scrolls."""
        return direction_of(delta, self.positive)

    def notches(self, delta_sum: float) -> int:
        """Whole notches of a scroll, up to `MAX_NOTCHES`; halves are rounded away from zero."""
        return min(floor(round(abs(delta_sum) / self.per_notch, _DECIMALS) + 0.5), MAX_NOTCHES)

    def remainder(self, delta_sum: float) -> float:
        """Notches that `notches` leaves out, with the sign of the deltas that were left out."""
        whole = copysign(self.notches(delta_sum), delta_sum)
        return round(delta_sum / self.per_notch - whole, _DECIMALS)


@dataclass(frozen=True)
class WheelVote:
    """What the video shows about the wheel of one recording.

    Attributes:
        positive: the direction in which a positive delta scrolls; None: the video does not show it.
        votes: scrolls whose content moved vertically.
        agreeing: those of them that show `positive`, or the more frequent sign when that is None.
        sideways: action index → direction, for scrolls whose content moved horizontally.
    """

    positive: Vertical | None = None
    votes: int = 0
    agreeing: int = 0
    sideways: Mapping[int, Horizontal] = field(default_factory=dict)


@dataclass(frozen=True)
class ScrollEvidence:
    """One scroll as logged and as filmed.

    Attributes:
        action_index: of the scroll.
        delta_sum: sum of its raw deltas; not 0.
        content_moves: direction in which the content moved → number of frames.
    """

    action_index: int
    delta_sum: float
    content_moves: Mapping[Direction, int]


def direction_of(delta: float, positive: Vertical) -> Vertical:
    """The direction in which `delta` scrolls when a positive delta scrolls `positive`.

    Backwards it is the same: what a positive delta does when `delta` scrolls in a direction.
    """
    opposite: Vertical = "up" if positive == "down" else "down"
    return positive if delta > 0 else opposite


def logs_pixels(deltas: Iterable[float], platform: str) -> bool:
    """Whether a recording counts in pixels: on macOS, unless all its deltas are whole notches."""
    return platform == "macos" and any(delta % UNITS_PER_NOTCH for delta in deltas)


def parts_of_a_notch(deltas: Sequence[float]) -> frozenset[int]:
    """The parts of 120 of which all `deltas` are multiples."""
    return frozenset(
        part for part in PARTS_OF_A_NOTCH if all(delta % part == 0 for delta in deltas)
    )


def wheel_rule(
    deltas: Sequence[float], settings: ActionSettings, *, in_pixels: bool = False
) -> _WheelRule:
    """The rule for one scroll with these deltas, none of them 0.

    In a recording that counts in pixels, positive scrolls up. Elsewhere deltas that are all
    multiples of a part of 120 follow the documented convention: 120 a notch, positive scrolls down.
    Other deltas are notches or fractions of one, positive scrolls up: so write recorders that
    divide by 120 themselves. `settings.wheel_sign` overrides the sign, not the unit.
    """
    if in_pixels:
        rule = _WheelRule("pixel", "up", "unit_signature", settings.macos_pixels_per_notch)
    elif parts_of_a_notch(deltas):
        rule = _WheelRule("120", "down", "unit_signature", UNITS_PER_NOTCH)
    else:
        rule = _WheelRule("notch", "up", "unit_signature", 1)
    if settings.wheel_sign == "auto":
        return rule
    positive: Vertical = "down" if settings.wheel_sign == "positive_down" else "up"
    return _WheelRule(rule.unit, positive, OVERRIDE, rule.per_notch)


def filmed_direction(content_moves: Mapping[Direction, int]) -> Direction | None:
    """The direction of one scroll: opposite to the way its content moved; None: unclear.

    At least `MIN_VOTE_SHARE` of the frames with movement must agree; for a horizontal scroll all of
    them, and at least `MIN_SIDEWAYS_FRAMES`.
    """
    if not content_moves:
        return None
    moves = Counter(content_moves)
    direction, count = moves.most_common(1)[0]
    if direction in {"left", "right"} and (count < MIN_SIDEWAYS_FRAMES or count < moves.total()):
        return None
    return _OPPOSITE[direction] if count >= MIN_VOTE_SHARE * moves.total() else None


def count_votes(scrolls: Iterable[ScrollEvidence]) -> WheelVote:
    """Count which sign the scrolls show.

    Vertical scrolls vote: `positive` is a sign that at least `MIN_VOTE_SHARE` of the votes share.
    Horizontal scrolls have no vote; they are listed in `sideways`.
    """
    signs: Counter[Vertical] = Counter()
    sideways: dict[int, Horizontal] = {}
    for scroll in scrolls:
        match filmed_direction(scroll.content_moves):
            case "left" | "right" as across:
                sideways[scroll.action_index] = across
            case "up" | "down" as along:
                signs[direction_of(scroll.delta_sum, along)] += 1
    if not signs:
        return WheelVote(sideways=sideways)
    votes, (winner, agreeing) = signs.total(), signs.most_common(1)[0]
    shared = winner if agreeing >= MIN_VOTE_SHARE * votes else None
    return WheelVote(shared, votes, agreeing, sideways)


def sign_disagrees(
    delta_sum: float | None, rule_direction: str | None, vote: WheelVote
) -> bool | None:
    """Whether the video shows another sign of the deltas than the rule gives for a scroll.

    None: the video does not show it.
    """
    if vote.positive is None or not delta_sum:
        return None
    return direction_of(delta_sum, vote.positive) != rule_direction


def scroll_direction(
    action_index: int, delta_sum: float | None, method: str | None, vote: WheelVote
) -> Direction | None:
    """The direction that the video shows for a logged scroll; None: the rule's direction applies.

    A horizontal movement of this scroll counts first, then the sign that the recording's scrolls
    agree on. A sign from the settings (`method` is `override`) is never replaced.
    """
    if method == OVERRIDE:
        return None
    if action_index in vote.sideways:
        return vote.sideways[action_index]
    if vote.positive is None or not delta_sum:
        return None
    return direction_of(delta_sum, vote.positive)


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
    """Wheel events of one scroll: the sum of their deltas, the parts of a notch that fit all."""

    turns: list[Gesture]
    total: float
    fits: frozenset[int]
    rule: _WheelRule

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


def join_scrolls(
    gestures: Sequence[Gesture],
    settings: ActionSettings,
    reasons: dict[int, str],
    *,
    in_pixels: bool,
) -> tuple[list[Gesture], float]:
    """Replace the wheel events among `gestures` (in time order) by scrolls with their `deltas`.

    Events that become part of no scroll get a reason in `reasons`.

    Returns:
        All gestures in time order, and the notches that no action contains, signed as logged: what
        rounding leaves out and scrolls below half a notch.
    """
    scrolls: list[tuple[Gesture, _WheelRule]] = []
    remainder = 0.0
    for burst in _bursts(gestures, settings, reasons, in_pixels=in_pixels):
        parts = _directions(burst.turns, settings, in_pixels=in_pixels)
        rules = [wheel_rule(_deltas(part), settings, in_pixels=in_pixels) for part in parts]
        mixed = len({rule.unit for rule in rules}) > 1
        for number, (part, rule) in enumerate(zip(parts, rules, strict=True)):
            scroll = _scroll(part, burst.phases if number == 0 else [])
            # No hand turns so many notches at a time; pixels and 120ths are not limited.
            many = any(abs(delta) > MAX_EVENT_NOTCHES for delta in scroll.deltas)
            if rule.unit == "notch" and (many or mixed):
                reasons.update(dict.fromkeys(scroll.events, UNCLEAR_UNIT))
                continue
            remainder += rule.remainder(scroll.delta)
            if rule.notches(scroll.delta):
                scrolls.append((scroll, rule))
            else:
                reasons.update(dict.fromkeys(scroll.events, BELOW_HALF_NOTCH))
    _flag_uncertain(scrolls, unclear=UNCLEAR_UNIT in reasons.values())
    others = [gesture for gesture in gestures if gesture.kind is not GestureKind.WHEEL]
    joined = sorted([*others, *(one for one, _ in scrolls)], key=lambda g: (g.start, g.index))
    return joined, remainder


def _deltas(turns: Sequence[Gesture]) -> tuple[float, ...]:
    return tuple(turn.delta for turn in turns)


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
        if last is not None and gesture.start - last.end() > settings.scroll_gap_ms:
            last = None
        if not gesture.delta:
            (last.phases if last else early).append(gesture)
            continue
        if last and (
            (
                not interrupted
                and distance(last.turns[0], gesture) <= settings.click_radius_px
                and last.turns[-1].modifiers == gesture.modifiers
            )
            or (in_pixels and _is_momentum(last, gesture))
        ):
            last.turns.append(gesture)
        else:
            begun = [one for one in early if gesture.start - one.start <= settings.scroll_gap_ms]
            bursts.append(_Burst([gesture], begun))
            early = [one for one in early if one not in begun]
        interrupted = False
    reasons.update((index, "zero_delta") for one in early for index in one.events)
    return bursts


def _is_momentum(burst: _Burst, gesture: Gesture) -> bool:
    """Whether a touchpad scrolls on by itself; pointer and keys may already do something else."""
    last = burst.turns[-1]
    same_direction = (gesture.delta > 0) == (last.delta > 0)
    slowing = abs(gesture.delta) <= abs(last.delta)
    return same_direction and slowing and gesture.start - burst.end() <= MOMENTUM_GAP_MS


def _directions(
    turns: list[Gesture], settings: ActionSettings, *, in_pixels: bool
) -> list[list[Gesture]]:
    """Part a burst where it reverses. Less than half a notch does not reverse it.

    Runs in different units are never one part.
    """
    parts: list[_Part] = []
    for _, in_one_direction in groupby(turns, key=lambda turn: turn.delta > 0):
        run = list(in_one_direction)
        deltas = _deltas(run)
        rule = wheel_rule(deltas, settings, in_pixels=in_pixels)
        part = _Part(run, sum(deltas), parts_of_a_notch(deltas), rule)
        if not parts or not parts[-1].absorbs(part, in_pixels=in_pixels):
            parts.append(part)
    return [part.turns for part in parts]


def _scroll(turns: Sequence[Gesture], phases: Sequence[Gesture]) -> Gesture:
    first = turns[0]
    deltas = _deltas(turns)
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


def _flag_uncertain(scrolls: Sequence[tuple[Gesture, _WheelRule]], *, unclear: bool) -> None:
    """Flag scrolls whose unit few scrolls of the recording share; whole notches of 120 are certain.

    If the recording has scrolls in no known unit (`unclear`), its notches are uncertain as well.
    """
    frequency = Counter(rule.unit for _, rule in scrolls)
    for scroll, rule in scrolls:
        whole = all(delta % UNITS_PER_NOTCH == 0 for delta in scroll.deltas)
        documented = rule.unit == "120" and whole
        rare = frequency[rule.unit] < MIN_UNIT_SCROLLS and not documented
        if rare or (unclear and rule.unit == "notch"):
            scroll.flags.add("wheel_unit_uncertain")
