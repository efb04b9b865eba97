"""Scrolls: joins wheel events to scrolls, and finds their unit and their direction.

Recorders write deltas in three units and two signs. The direction of a scroll follows in three
steps:

1. `read_wheel` finds a rule for unit and sign, from the platform, the settings and all deltas of a
   recording.
2. `count_votes` counts the scrolls for which the video shows each sign.
3. `scroll_direction` takes the direction that the video shows, else the direction of the rule.

A single scroll cannot overrule the rule, because in the video a list of similar lines may seem to
move the other way. The direction of such a scroll is unknown (`is_sign_doubtful`). If the deltas
may be in either of two units, only the video can tell (`filmed_unit`).
observation/frames/scroll_motion.py measures how content moves in the video.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from math import copysign, floor
from operator import attrgetter
from typing import Literal

from demo_pipeline.actions.inputs import Gesture, GestureKind, Input, distance
from demo_pipeline.settings import ActionSettings

UNITS_PER_NOTCH = 120  # WHEEL_DELTA: what Windows counts for one detent
# The deltas of wheels with detents finer than a notch.
PARTS_OF_A_NOTCH = (120, 60, 40, 30, 24, 20, 15, 12, 10)
FEW_NOTCHES = 10  # an event that counts notches has fewer, even if the wheel spins freely
MANY_NOTCHES = 30  # in a scroll; rare by hand, but usual for 120ths of a touchpad
MIN_UNIT_SCROLLS = 3  # scrolls of a recording; with fewer, its unit is uncertain
MAX_NOTCHES = 2**31 - 1  # the column `amount` has 32 bits
_DECIMALS = 6  # of notches, because sums of fractions are not exact
MIN_VOTE_SHARE = 0.75  # of the votes, and of a scroll's moving frames, must agree
MIN_VOTES_AGAINST_RULE = 2  # scrolls that show another sign than the rule; one may be a mistake
MIN_SIDEWAYS_FRAMES = 2  # horizontal scrolls are rare: a single moving frame is no evidence
OVERRIDE = "override"  # a value of `wheel_method`: a setting decides the sign
EVIDENCE = "evidence"  # a value of `wheel_method`: the video decides

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
        """Returns the direction in which `delta` scrolls."""
        return direction_of(delta, self.positive)

    def notches(self, delta_sum: float) -> int:
        """Returns the whole notches of a scroll, at most `MAX_NOTCHES`; halves are rounded up."""
        return min(floor(round(abs(delta_sum) / self.per_notch, _DECIMALS) + 0.5), MAX_NOTCHES)

    def remainder(self, delta_sum: float) -> float:
        """Returns what `notches` drops: a signed fraction, or more above `MAX_NOTCHES`."""
        whole = copysign(self.notches(delta_sum), delta_sum)
        return round(delta_sum / self.per_notch - whole, _DECIMALS)


@dataclass(frozen=True)
class Wheel:
    """How to read the wheel deltas of a recording.

    Attributes:
        rule: of its scrolls.
        either: of scrolls with an unclear unit (`is_unclear`), if the video shows notches.
        glides: whether a touchpad wrote the deltas. Zeros are phases of a gesture, and scrolls have
            momentum.
        unclear: whether the log leaves the unit of all deltas open.
        detents: whether all deltas above 1 are whole parts of a notch. Then a delta of 1 may be a
            notch.
    """

    rule: _WheelRule
    either: _WheelRule
    glides: bool = False
    unclear: bool = False
    detents: bool = False

    def is_unclear(self, deltas: Iterable[float]) -> bool:
        """Returns whether the deltas of a scroll may be notches as well as 120ths of a notch."""
        return self.unclear or (self.detents and all(abs(delta) == 1 for delta in deltas))

    def rule_of(self, *, unclear: bool) -> _WheelRule:
        """Returns the rule of a scroll."""
        return self.either if unclear else self.rule


@dataclass(frozen=True)
class WheelVote:
    """The evidence in the video about the wheel of a recording.

    Attributes:
        positive: the direction in which a positive delta scrolls; None: the video does not show it.
        votes: number of scrolls whose content moved vertically.
        agreeing: number of those that show `positive`, or the more frequent sign if that is None.
        sideways: action index → direction, for scrolls whose content moved horizontally.
        unclear: action index → direction and unit, for scrolls whose unit the log leaves open.
            A scroll is left out if it is the only one that contradicts the rule of its unit.
    """

    positive: Vertical | None = None
    votes: int = 0
    agreeing: int = 0
    sideways: Mapping[int, Horizontal] = field(default_factory=dict)
    unclear: Mapping[int, tuple[Direction, FilmedUnit]] = field(default_factory=dict)


@dataclass(frozen=True)
class ScrollEvidence:
    """A scroll as the log and the video show it.

    Attributes:
        action_index: of the scroll.
        delta_sum: sum of its raw deltas; not 0.
        content_moves: direction in which the content moved → number of frames.
        pixels: sum of the pixels by which the content moved in those frames.
        unclear: whether the log leaves the unit of its deltas open.
    """

    action_index: int
    delta_sum: float
    content_moves: Mapping[Direction, int]
    pixels: float = 0.0
    unclear: bool = False


def direction_of(delta: float, positive: Vertical) -> Vertical:
    """Returns the direction in which `delta` scrolls if a positive delta scrolls `positive`.

    The function is its own inverse: given the direction in which `delta` scrolls, it returns the
    direction in which a positive delta scrolls.
    """
    opposite: Vertical = "up" if positive == "down" else "down"
    return positive if delta > 0 else opposite


def read_wheel(turns: Sequence[Input], platform: str, settings: ActionSettings) -> Wheel:
    """Returns how to read the wheel of a recording.

    - macOS: deltas are pixels, and positive scrolls up, unless all deltas are whole notches.
    - The documented convention: 120 per notch, and positive scrolls down. A single delta that is
      too large for notches proves it for the whole recording. So does a scroll that is too long.
    - Deltas that are mostly 1, or fractions: notches, and positive scrolls up. Recorders that
      divide by 120 themselves write them.
    - Other deltas stay unclear.

    `settings.wheel_sign` overrides the sign, but not the unit. `turns` are all wheel events of the
    log in time order.
    """
    moving_turns = [turn for turn in turns if turn.delta]
    sizes = [abs(turn.delta) for turn in moving_turns]
    notches = _rule("notch", "up", 1, settings)
    if platform == "macos" and any(size % UNITS_PER_NOTCH for size in sizes):
        pixels = _rule("pixel", "up", settings.macos_pixels_per_notch, settings)
        return Wheel(pixels, pixels, glides=True)
    parts = _rule("120", "down", UNITS_PER_NOTCH, settings)
    has_large = any(size >= FEW_NOTCHES for size in sizes)
    mostly_single = sum(size <= 1 for size in sizes) * 2 >= len(sizes)
    counts_notches = mostly_single or any(size % 1 for size in sizes)
    if not has_large and (counts_notches or _longest(moving_turns, settings) <= MANY_NOTCHES):
        return Wheel(notches, notches, unclear=not counts_notches)
    above_one = [size for size in sizes if size > 1]
    has_detents = any(all(size % part == 0 for size in above_one) for part in PARTS_OF_A_NOTCH)
    return Wheel(parts, notches, glides=not has_detents, detents=has_detents)


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


def _longest(turns: Sequence[Input], settings: ActionSettings) -> float:
    """Returns the largest sum of deltas with the same sign that follow each other closely."""
    if not turns:
        return 0.0
    total = abs(turns[0].delta)
    largest = total
    for before, turn in pairwise(turns):
        is_close = turn.time - before.time <= settings.scroll_gap_ms
        if not is_close or turn.delta * before.delta <= 0:
            total = 0.0
        total += abs(turn.delta)
        largest = max(largest, total)
    return largest


def filmed_direction(content_moves: Mapping[Direction, int]) -> Direction | None:
    """Returns the direction of a scroll, which is opposite to the motion of its content.

    At least `MIN_VOTE_SHARE` of the frames with motion have to agree. For a horizontal scroll all
    of them have to, and at least `MIN_SIDEWAYS_FRAMES`. None: they do not agree.
    """
    if not content_moves:
        return None
    moves = Counter(content_moves)
    direction, count = moves.most_common(1)[0]
    is_sideways = direction in {"left", "right"}
    if is_sideways and (count < MIN_SIDEWAYS_FRAMES or count < moves.total()):
        return None
    return _OPPOSITE[direction] if count >= MIN_VOTE_SHARE * moves.total() else None


# Pixels by which content moves per unit of the delta. A notch moves it by three lines, which are 48
# to 120 pixels, but a few frames may show only a part of them. A 120th moves it by at most a pixel.
_LEAST_OF_A_NOTCH = 6.0
_MOST_OF_A_PART = 3.0


def filmed_unit(pixels: float) -> FilmedUnit | None:
    """Returns the unit of deltas that move content by so many pixels each; None: unclear."""
    if pixels >= _LEAST_OF_A_NOTCH:
        return "notch"
    return "120" if pixels <= _MOST_OF_A_PART else None


def filmed_notches(delta_sum: float, unit: FilmedUnit | None) -> int:
    """Returns the whole notches of a scroll with deltas in a unit; 0: the unit is unknown."""
    if unit is None:
        return 0
    per_notch = UNITS_PER_NOTCH if unit == "120" else 1
    return _WheelRule(unit, "up", EVIDENCE, per_notch).notches(delta_sum)


def count_votes(scrolls: Iterable[ScrollEvidence]) -> WheelVote:
    """Counts which sign the scrolls show.

    Vertical scrolls vote. At least `MIN_VOTE_SHARE` of the votes have to agree on `positive`.
    Horizontal scrolls do not vote; `sideways` lists them. Scrolls of an unclear unit do not vote
    either, because their sign may differ, too.
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
            case "left" | "right" as horizontal:
                sideways[scroll.action_index] = horizontal
            case "up" | "down" as vertical:
                signs[direction_of(scroll.delta_sum, vertical)] += 1
    unclear = _unclear_units(unclear_scrolls)
    if not signs:
        return WheelVote(sideways=sideways, unclear=unclear)
    votes = signs.total()
    winner, agreeing = signs.most_common(1)[0]
    positive = winner if agreeing >= MIN_VOTE_SHARE * votes else None
    return WheelVote(positive, votes, agreeing, sideways, unclear)


_RULE_OF_UNIT: Mapping[FilmedUnit, Vertical] = {"120": "down", "notch": "up"}


def _unclear_units(scrolls: Iterable[ScrollEvidence]) -> dict[int, tuple[Direction, FilmedUnit]]:
    """Returns direction and unit of scrolls whose unit the log leaves open.

    A vertical scroll that contradicts the rule of its unit counts only if another scroll does, too.
    """
    units: dict[int, tuple[Direction, FilmedUnit]] = {}
    against: dict[int, FilmedUnit] = {}
    for scroll in scrolls:
        direction = filmed_direction(scroll.content_moves)
        unit = filmed_unit(scroll.pixels / abs(scroll.delta_sum))
        if direction is None or unit is None:
            continue
        units[scroll.action_index] = (direction, unit)
        is_vertical = direction in {"up", "down"}
        if is_vertical and direction_of(scroll.delta_sum, _RULE_OF_UNIT[unit]) != direction:
            against[scroll.action_index] = unit
    counts = Counter(against.values())
    for action_index, unit in against.items():
        if counts[unit] < MIN_VOTES_AGAINST_RULE:
            del units[action_index]
    return units


def sign_disagrees(
    delta_sum: float | None, rule_direction: str | None, vote: WheelVote
) -> bool | None:
    """Returns whether the video shows another sign of the deltas than the rule for a scroll.

    None: the video does not show the sign, or only a single scroll contradicts the rule.
    """
    if is_sign_doubtful(delta_sum, rule_direction, vote):
        return None
    return _contradicts_rule(delta_sum, rule_direction, vote)


def is_sign_doubtful(delta_sum: float | None, rule_direction: str | None, vote: WheelVote) -> bool:
    """Returns whether only a single scroll contradicts the rule, so that neither is certain."""
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
    """Returns the direction that the video shows for a scroll; None: the rule decides.

    A horizontal motion of the content comes first, then the sign that the scrolls of the recording
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


MOMENTUM_GAP_MS = 150  # the longest time between two events of a touchpad's momentum
BELOW_HALF_NOTCH = "below_half_notch"
UNCLEAR_UNIT = "unclear_wheel_unit"


@dataclass
class _Burst:
    """Wheel events in both directions that follow each other at the same place.

    Attributes:
        turns: the events with a delta, in time order; at least one.
        phases: events with a delta of 0, which mark the phases of a touchpad gesture.
    """

    turns: list[Gesture]
    phases: list[Gesture] = field(default_factory=list)

    def end(self) -> int:
        """Returns the time of its last event, epoch milliseconds."""
        return max(event.start for event in (*self.turns[-1:], *self.phases[-1:]))


@dataclass
class _DirectionPart:
    """The wheel events of a scroll, which go in the same direction, and the sum of their deltas."""

    turns: list[Gesture]
    total: float
    rule: _WheelRule

    def absorbs(self, run: "_DirectionPart") -> bool:
        """Adds the next run, unless it reverses the direction; returns whether it was added."""
        is_small = not self.rule.notches(self.total) or not self.rule.notches(run.total)
        if not is_small and (self.total > 0) != (run.total > 0):
            return False
        self.turns += run.turns
        self.total += run.total
        return True


def join_scrolls(
    gestures: Sequence[Gesture], settings: ActionSettings, reasons: dict[int, str], wheel: Wheel
) -> tuple[list[Gesture], float]:
    """Replaces the wheel events among gestures by scrolls with their `deltas`.

    Events that are part of no scroll get a reason in `reasons`. Scrolls whose unit the log leaves
    open have the flag `UNCLEAR_UNIT`. `gestures` are in time order.

    Returns:
        All gestures in time order, and the notches that no action contains, signed as logged. They
        come from rounding, and from scrolls below half a notch.
    """
    scrolls: list[Gesture] = []
    remainder = 0.0
    for burst in _bursts(gestures, settings, reasons, wheel):
        unclear = wheel.is_unclear(turn.delta for turn in burst.turns)
        rule = wheel.rule_of(unclear=unclear)
        for number, part in enumerate(_directions(burst.turns, rule)):
            scroll = _scroll(part, burst.phases if number == 0 else [])
            if unclear:
                scroll.flags.add(UNCLEAR_UNIT)
            remainder += rule.remainder(scroll.delta)
            if rule.notches(scroll.delta):
                scrolls.append(scroll)
            else:
                reasons.update(dict.fromkeys(scroll.events, BELOW_HALF_NOTCH))
    if len(scrolls) < MIN_UNIT_SCROLLS:
        for scroll in scrolls:
            are_whole = all(delta % UNITS_PER_NOTCH == 0 for delta in scroll.deltas)
            if wheel.rule.unit != "120" or not are_whole:
                scroll.flags.add("wheel_unit_uncertain")
    others = [gesture for gesture in gestures if gesture.kind is not GestureKind.WHEEL]
    joined = sorted([*others, *scrolls], key=attrgetter("start", "index"))
    return joined, remainder


def _deltas(turns: Sequence[Gesture]) -> tuple[float, ...]:
    return tuple(turn.delta for turn in turns)


def _bursts(
    gestures: Sequence[Gesture], settings: ActionSettings, reasons: dict[int, str], wheel: Wheel
) -> list[_Burst]:
    """Returns the wheel events that belong together.

    Less than half a notch is no action. It joins the wheel events that follow before a pause.
    """
    bursts: list[_Burst] = []
    early_phases: list[Gesture] = []  # before the first movement
    is_interrupted = False
    for gesture in gestures:
        if gesture.kind is not GestureKind.WHEEL:
            is_interrupted = True
            continue
        last = bursts[-1] if bursts else None
        if last is not None and gesture.start - last.end() > settings.scroll_gap_ms:
            is_small = not wheel.rule.notches(sum(_deltas(last.turns)))
            if not is_small or gesture.start - last.end() >= settings.pause_ms:
                last = None
        if not gesture.delta:
            phases = early_phases if last is None else last.phases
            phases.append(gesture)
            continue
        is_same_place = (
            last is not None
            and not is_interrupted
            and distance(last.turns[0], gesture) <= settings.click_radius_px
            and last.turns[-1].modifiers == gesture.modifiers
        )
        is_momentum = last is not None and wheel.glides and _is_momentum(last, gesture)
        if last is not None and (is_same_place or is_momentum):
            last.turns.append(gesture)
        else:
            own_phases = [
                phase
                for phase in early_phases
                if gesture.start - phase.start <= settings.scroll_gap_ms
            ]
            bursts.append(_Burst([gesture], own_phases))
            early_phases = [phase for phase in early_phases if phase not in own_phases]
        is_interrupted = False
    for phase in early_phases:
        reasons.update(dict.fromkeys(phase.events, "zero_delta"))
    return bursts


def _is_momentum(burst: _Burst, gesture: Gesture) -> bool:
    """Returns whether a touchpad scrolls on by itself, even if the person does something else."""
    last = burst.turns[-1]
    is_same_direction = (gesture.delta > 0) == (last.delta > 0)
    is_slower = abs(gesture.delta) <= abs(last.delta)
    is_soon = gesture.start - burst.end() <= MOMENTUM_GAP_MS
    return is_same_direction and is_slower and is_soon


def _directions(turns: list[Gesture], rule: _WheelRule) -> list[list[Gesture]]:
    """Splits a burst where it reverses. Less than half a notch does not reverse it."""
    parts: list[_DirectionPart] = []
    for _, in_one_direction in groupby(turns, key=lambda turn: turn.delta > 0):
        run = list(in_one_direction)
        part = _DirectionPart(run, sum(_deltas(run)), rule)
        if not parts or not parts[-1].absorbs(part):
            parts.append(part)
    return [part.turns for part in parts]


def _scroll(turns: Sequence[Gesture], phases: Sequence[Gesture]) -> Gesture:
    """Returns the scroll that consists of wheel events and of phases of a touchpad gesture."""
    first = turns[0]
    deltas = _deltas(turns)
    lines: set[int] = set()
    for event in (*turns, *phases):
        lines.update(event.events)
    return Gesture(
        GestureKind.WHEEL,
        first.start,
        max(turn.end for turn in turns),
        first.index,
        sorted(lines),
        modifiers=first.modifiers,
        x=first.x,
        y=first.y,
        delta=sum(deltas),
        deltas=deltas,
    )
