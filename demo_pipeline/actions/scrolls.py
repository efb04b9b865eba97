"""Scrolls: what a wheel's deltas mean, which way they go, and which wheel events are one scroll.

Recorders write deltas in three units and two signs. Three steps decide the direction of a scroll:
`read_wheel` reads unit and sign from all deltas of a recording, the platform and the settings;
`count_votes` counts in how many scrolls the video shows each sign; `scroll_direction` takes the
direction that the video shows, else the rule's. A single scroll cannot overrule the rule, because
lists of alike lines look as if they moved the other way: its direction is unknown
(`is_sign_doubtful`). Where the deltas may be in either of two units, only the video tells
(`filmed_unit`). Content that moves in the video is measured in observation/frames/scroll_motion.py.

Belongs here also: which wheel events belong together, reversals, touchpad momentum, and scrolls
that are too small to be an action.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from math import copysign, floor
from typing import Literal

from demo_pipeline.actions.inputs import Gesture, GestureKind, Input, distance
from demo_pipeline.settings import ActionSettings

UNITS_PER_NOTCH = 120  # WHEEL_DELTA: what Windows counts for one detent
# What a wheel with detents finer than a notch sends at a time.
PARTS_OF_A_NOTCH = (120, 60, 40, 30, 24, 20, 15, 12, 10)
FEW_NOTCHES = 10  # one event of a wheel that counts notches has fewer, however freely it spins
MANY_NOTCHES = 30  # in one scroll; touchpads get there with 120ths at once, hands rarely
MIN_UNIT_SCROLLS = 3  # scrolls of a recording; with fewer its unit is uncertain
MAX_NOTCHES = 2**31 - 1  # the column `amount` has 32 bits
_DECIMALS = 6  # of notches: sums of fractions are not exact
MIN_VOTE_SHARE = 0.75  # of the votes, and of a scroll's moving frames, must agree
MIN_VOTES_AGAINST_RULE = 2  # scrolls that show another sign than the rule; one may be a mistake
MIN_SIDEWAYS_FRAMES = 2  # horizontal scrolls are rare: one moving frame is not evidence
OVERRIDE, EVIDENCE = "override", "evidence"  # of the values of `wheel_method`

Vertical = Literal["up", "down"]
Horizontal = Literal["left", "right"]
Direction = Literal["up", "down", "left", "right"]
FilmedUnit = Literal["120", "notch"]
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
class Wheel:
    """How the wheel deltas of a recording are to be read.

    Attributes:
        rule: of its scrolls.
        either: of the scrolls of `is_unclear`, if the video shows that they count notches.
        glides: touchpads wrote it: zeros are phases of a gesture, which runs on by itself.
        unclear: nothing in the log tells in which of the two units any of its deltas are.
        detents: the deltas above 1 are whole parts of a notch, so that none of them is 1.
    """

    rule: _WheelRule
    either: _WheelRule
    glides: bool = False
    unclear: bool = False
    detents: bool = False

    def is_unclear(self, deltas: Iterable[float]) -> bool:
        """Whether these deltas of one scroll may be notches, and 120ths of one as well."""
        return self.unclear or (self.detents and all(abs(delta) == 1 for delta in deltas))

    def rule_of(self, *, unclear: bool) -> _WheelRule:
        """The rule of a scroll."""
        return self.either if unclear else self.rule


@dataclass(frozen=True)
class WheelVote:
    """What the video shows about the wheel of one recording.

    Attributes:
        positive: the direction in which a positive delta scrolls; None: the video does not show it.
        votes: scrolls whose content moved vertically.
        agreeing: those of them that show `positive`, or the more frequent sign when that is None.
        sideways: action index → direction, for scrolls whose content moved horizontally.
        unclear: action index → direction, and whether deltas are notches or 120ths of one, for
            scrolls of which the log does not tell the unit. Left out: those that alone show another
            sign than the rule of that unit.
    """

    positive: Vertical | None = None
    votes: int = 0
    agreeing: int = 0
    sideways: Mapping[int, Horizontal] = field(default_factory=dict)
    unclear: Mapping[int, tuple[Direction, FilmedUnit]] = field(default_factory=dict)


@dataclass(frozen=True)
class ScrollEvidence:
    """One scroll as logged and as filmed.

    Attributes:
        action_index: of the scroll.
        delta_sum: sum of its raw deltas; not 0.
        content_moves: direction in which the content moved → number of frames.
        pixels: by which it moved in those frames, together.
        unclear: the log does not tell the unit of its deltas.
    """

    action_index: int
    delta_sum: float
    content_moves: Mapping[Direction, int]
    pixels: float = 0.0
    unclear: bool = False


def direction_of(delta: float, positive: Vertical) -> Vertical:
    """The direction in which `delta` scrolls when a positive delta scrolls `positive`.

    Backwards it is the same: what a positive delta does when `delta` scrolls in a direction.
    """
    opposite: Vertical = "up" if positive == "down" else "down"
    return positive if delta > 0 else opposite


def read_wheel(turns: Sequence[Input], platform: str, settings: ActionSettings) -> Wheel:
    """How to read the wheel of a recording with these wheel events, in time order.

    On macOS deltas are pixels and positive scrolls up, unless all are whole notches. Elsewhere a
    single delta that no hand turns in notches, or a scroll of so many, says that all follow the
    documented convention: 120 a notch, positive scrolls down. Deltas that are mostly 1, or
    fractions, are notches and positive scrolls up: so write recorders that divide by 120
    themselves. Others stay unclear. `settings.wheel_sign` overrides the sign, not the unit.
    """
    moved = [turn for turn in turns if turn.delta]
    sizes = [abs(turn.delta) for turn in moved]
    notches = _rule("notch", "up", 1, settings)
    if platform == "macos" and any(size % UNITS_PER_NOTCH for size in sizes):
        pixels = _rule("pixel", "up", settings.macos_pixels_per_notch, settings)
        return Wheel(pixels, pixels, glides=True)
    parts = _rule("120", "down", UNITS_PER_NOTCH, settings)
    large = any(size >= FEW_NOTCHES for size in sizes)
    single = sum(size <= 1 for size in sizes) * 2 >= len(sizes) or any(size % 1 for size in sizes)
    if not large and (single or _longest(moved, settings) <= MANY_NOTCHES):
        return Wheel(notches, notches, unclear=not single)
    above = [size for size in sizes if size > 1]
    detents = any(all(size % part == 0 for size in above) for part in PARTS_OF_A_NOTCH)
    return Wheel(parts, notches, glides=not detents, detents=detents)


def _rule(
    unit: Literal["120", "notch", "pixel"],
    positive: Vertical,
    per_notch: float,
    settings: ActionSettings,
) -> _WheelRule:
    if settings.wheel_sign == "auto":
        return _WheelRule(unit, positive, "unit_signature", per_notch)
    chosen: Vertical = "down" if settings.wheel_sign == "positive_down" else "up"
    return _WheelRule(unit, chosen, OVERRIDE, per_notch)


def _longest(moved: Sequence[Input], settings: ActionSettings) -> float:
    """The largest sum of deltas of one sign that follow each other closely."""
    largest = total = abs(moved[0].delta) if moved else 0.0
    for before, turn in pairwise(moved):
        close = turn.time - before.time <= settings.scroll_gap_ms
        total = abs(turn.delta) + (total if close and turn.delta * before.delta > 0 else 0.0)
        largest = max(largest, total)
    return largest


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


# Pixels that content moves for one of the delta. A notch is three lines, 48 to 120 pixels, of which
# few frames show a part; a 120th of it is less than one.
_LEAST_OF_A_NOTCH = 6.0
_MOST_OF_A_PART = 3.0


def filmed_unit(pixels: float) -> FilmedUnit | None:
    """The unit of deltas for each of which the content moves so many pixels; None: unclear."""
    if pixels >= _LEAST_OF_A_NOTCH:
        return "notch"
    return "120" if pixels <= _MOST_OF_A_PART else None


def filmed_notches(delta_sum: float, unit: FilmedUnit | None) -> int:
    """Whole notches of a scroll with deltas in this unit; 0 when it is not known."""
    if unit is None:
        return 0
    per_notch = UNITS_PER_NOTCH if unit == "120" else 1
    return _WheelRule(unit, "up", EVIDENCE, per_notch).notches(delta_sum)


def count_votes(scrolls: Iterable[ScrollEvidence]) -> WheelVote:
    """Count which sign the scrolls show.

    Vertical scrolls vote: `positive` is a sign that at least `MIN_VOTE_SHARE` of the votes share.
    Horizontal scrolls have no vote; they are listed in `sideways`. Nor have those whose unit the
    log does not tell: their sign may be another one, too.
    """
    signs: Counter[Vertical] = Counter()
    sideways: dict[int, Horizontal] = {}
    unclear_scrolls: list[ScrollEvidence] = []
    for scroll in scrolls:
        filmed = filmed_direction(scroll.content_moves)
        if scroll.unclear:
            unclear_scrolls.append(scroll)
            continue
        match filmed:
            case "left" | "right" as across:
                sideways[scroll.action_index] = across
            case "up" | "down" as along:
                signs[direction_of(scroll.delta_sum, along)] += 1
    unclear = _unclear_units(unclear_scrolls)
    if not signs:
        return WheelVote(sideways=sideways, unclear=unclear)
    votes = signs.total()
    (winner, agreeing) = signs.most_common(1)[0]
    shared = winner if agreeing >= MIN_VOTE_SHARE * votes else None
    return WheelVote(shared, votes, agreeing, sideways, unclear)


_RULE_OF_UNIT: Mapping[FilmedUnit, Vertical] = {"120": "down", "notch": "up"}


def _unclear_units(scrolls: Iterable[ScrollEvidence]) -> dict[int, tuple[Direction, FilmedUnit]]:
    """Direction and unit of the scrolls of which the log does not tell the unit.

    A vertical scroll whose sign contradicts the rule of its unit counts only if another scroll
    shows the same.
    """
    shown: dict[int, tuple[Direction, FilmedUnit]] = {}
    against: dict[int, FilmedUnit] = {}
    for scroll in scrolls:
        direction = filmed_direction(scroll.content_moves)
        unit = filmed_unit(scroll.pixels / abs(scroll.delta_sum))
        if direction is None or unit is None:
            continue
        shown[scroll.action_index] = (direction, unit)
        is_vertical = direction in {"up", "down"}
        if is_vertical and direction_of(scroll.delta_sum, _RULE_OF_UNIT[unit]) != direction:
            against[scroll.action_index] = unit
    counts = Counter(against.values())
    for action_index, unit in against.items():
        if counts[unit] < MIN_VOTES_AGAINST_RULE:
            del shown[action_index]
    return shown


def sign_disagrees(
    delta_sum: float | None, rule_direction: str | None, vote: WheelVote
) -> bool | None:
    """Whether the video shows another sign of the deltas than the rule gives for a scroll.

    None: the video does not show it, or a single scroll contradicts the rule.
    """
    contradicts = _contradicts_rule(delta_sum, rule_direction, vote)
    return None if contradicts and vote.votes < MIN_VOTES_AGAINST_RULE else contradicts


def is_sign_doubtful(delta_sum: float | None, rule_direction: str | None, vote: WheelVote) -> bool:
    """Whether a single scroll shows another sign than the rule, so that neither is certain."""
    contradicts = _contradicts_rule(delta_sum, rule_direction, vote)
    return bool(contradicts) and vote.votes < MIN_VOTES_AGAINST_RULE


def _contradicts_rule(
    delta_sum: float | None, rule_direction: str | None, vote: WheelVote
) -> bool | None:
    if vote.positive is None or not delta_sum:
        return None
    return direction_of(delta_sum, vote.positive) != rule_direction


def scroll_direction(
    action_index: int,
    delta_sum: float | None,
    rule_direction: str | None,
    method: str | None,
    vote: WheelVote,
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
    if is_sign_doubtful(delta_sum, rule_direction, vote):
        return None
    return direction_of(delta_sum, vote.positive)


MOMENTUM_GAP_MS = 150  # longest time between two events of a touchpad's momentum
BELOW_HALF_NOTCH = "below_half_notch"
UNCLEAR_UNIT = "unclear_wheel_unit"


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
    """Wheel events of one scroll and the sum of their deltas."""

    turns: list[Gesture]
    total: float
    rule: _WheelRule

    def absorbs(self, run: "_Part") -> bool:
        """Add the next run if it does not reverse this part."""
        small = not self.rule.notches(self.total) or not self.rule.notches(run.total)
        if not small and (self.total > 0) != (run.total > 0):
            return False
        self.turns += run.turns
        self.total += run.total
        return True


def join_scrolls(
    gestures: Sequence[Gesture], settings: ActionSettings, reasons: dict[int, str], wheel: Wheel
) -> tuple[list[Gesture], float]:
    """Replace the wheel events among `gestures` (in time order) by scrolls with their `deltas`.

    Events that become part of no scroll get a reason in `reasons`. Scrolls whose unit the log does
    not tell have the flag `UNCLEAR_UNIT`.

    Returns:
        All gestures in time order, and the notches that no action contains, signed as logged: what
        rounding leaves out and scrolls below half a notch.
    """
    scrolls: list[Gesture] = []
    remainder = 0.0
    for burst in _bursts(gestures, settings, reasons, wheel):
        unclear = wheel.is_unclear(turn.delta for turn in burst.turns)
        rule = wheel.rule_of(unclear=unclear)
        for number, part in enumerate(_directions(burst.turns, rule)):
            scroll = _scroll(part, burst.phases if number == 0 else [])
            scroll.flags |= {UNCLEAR_UNIT} if unclear else set()
            remainder += rule.remainder(scroll.delta)
            if rule.notches(scroll.delta):
                scrolls.append(scroll)
            else:
                reasons.update(dict.fromkeys(scroll.events, BELOW_HALF_NOTCH))
    if len(scrolls) < MIN_UNIT_SCROLLS:
        for scroll in scrolls:
            whole = all(delta % UNITS_PER_NOTCH == 0 for delta in scroll.deltas)
            if wheel.rule.unit != "120" or not whole:
                scroll.flags.add("wheel_unit_uncertain")
    others = [gesture for gesture in gestures if gesture.kind is not GestureKind.WHEEL]
    joined = sorted([*others, *scrolls], key=lambda g: (g.start, g.index))
    return joined, remainder


def _deltas(turns: Sequence[Gesture]) -> tuple[float, ...]:
    return tuple(turn.delta for turn in turns)


def _bursts(
    gestures: Sequence[Gesture], settings: ActionSettings, reasons: dict[int, str], wheel: Wheel
) -> list[_Burst]:
    """The wheel events that belong together.

    Less than half a notch is no action: it belongs to what follows before a pause.
    """
    bursts: list[_Burst] = []
    early: list[Gesture] = []  # phases before the first movement
    interrupted = False
    for gesture in gestures:
        if gesture.kind is not GestureKind.WHEEL:
            interrupted = True
            continue
        last = bursts[-1] if bursts else None
        if last is not None and gesture.start - last.end() > settings.scroll_gap_ms:
            small = not wheel.rule.notches(sum(_deltas(last.turns)))
            if not small or gesture.start - last.end() >= settings.pause_ms:
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
            or (wheel.glides and _is_momentum(last, gesture))
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


def _directions(turns: list[Gesture], rule: _WheelRule) -> list[list[Gesture]]:
    """Part a burst where it reverses. Less than half a notch does not reverse it."""
    parts: list[_Part] = []
    for _, in_one_direction in groupby(turns, key=lambda turn: turn.delta > 0):
        run = list(in_one_direction)
        part = _Part(run, sum(_deltas(run)), rule)
        if not parts or not parts[-1].absorbs(part):
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
