"""Joins wheel events into scrolls, and finds the unit and the direction of each scroll.

Recorders write wheel deltas in three units, and with either sign for scrolling down. The direction
of a scroll is found in three steps:

1. `read_wheel` derives unit and sign from the platform, the settings and all deltas of a recording
   (the rule by unit).
2. `count_votes` counts the scrolls for which the video shows each sign.
3. `scroll_direction` returns the direction that the video shows. If the video shows none, the rule
   by unit decides.

A list of similar lines may seem to move the wrong way in the video. Therefore, the video does not
overrule the rule by unit if only a single scroll shows the sign. If this scroll contradicts the
rule, the direction is unknown (`is_sign_doubtful`). If the deltas may be in either of two units,
only the video shows which unit is right (`video_unit`).
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

UNITS_PER_NOTCH = 120  # delta of a whole notch, called WHEEL_DELTA on Windows
# Deltas of a single step of the wheel: a whole notch, and the finer steps of some wheels.
PARTS_OF_A_NOTCH = (120, 60, 40, 30, 24, 20, 15, 12, 10)
FEW_NOTCHES = 10  # deltas that count notches are below 10, even if the wheel spins freely
# If the deltas of a scroll add up to more than 30, they count 120ths of a notch. Few scrolls have
# more than 30 notches.
MANY_NOTCHES = 30
# With fewer than three scrolls in a recording, the unit of a scroll is uncertain. Exception: deltas
# are 120ths of a notch in this recording, and all deltas of the scroll are multiples of 120.
MIN_UNIT_SCROLLS = 3
MAX_NOTCHES = 2**31 - 1  # the column `amount` has 32 bits
_DECIMALS = 6  # decimals to which notches are rounded, because sums of fractions are not exact
# Minimum share of scrolls that agree on the sign of the wheel. Also the minimum share of frames
# with motion that agree on the direction of a scroll.
MIN_VOTE_SHARE = 0.75
# The video overrules the direction that follows from the unit only if it shows the direction of at
# least two scrolls, because a single scroll may seem to go the wrong way.
MIN_VOTES_AGAINST_RULE = 2
# Minimum number of frames that must show the motion of a horizontal scroll. A single frame
# may seem to move the wrong way.
MIN_SIDEWAYS_FRAMES = 2
OVERRIDE = "override"  # value of `wheel_method`: a setting decided the sign
EVIDENCE = "evidence"  # value of `wheel_method`: the video decided

Vertical = Literal["up", "down"]
Horizontal = Literal["left", "right"]
Direction = Literal["up", "down", "left", "right"]
VideoUnit = Literal["120", "notch"]
_OPPOSITE: Mapping[str, Direction] = {"up": "down", "down": "up", "left": "right", "right": "left"}


@dataclass(frozen=True)
class _WheelRule:
    """Unit and sign of the wheel deltas of a scroll.

    Attributes:
        unit: unit of the logged deltas: 120ths of a notch, notches or pixels.
        positive: the direction in which a positive delta scrolls.
        method: source of `positive`, either `override` (a setting) or `unit_signature` (the unit).
        per_notch: number of logged units in a notch.
    """

    unit: Literal["120", "notch", "pixel"]
    positive: Vertical
    method: str
    per_notch: float

    def direction(self, delta: float) -> Vertical:
        """Returns the direction in which `delta` scrolls."""
        return direction_of(delta, self.positive)

    def notches(self, delta_sum: float) -> int:
        """Returns the number of notches of a scroll, rounded half up, at most `MAX_NOTCHES`."""
        return min(floor(round(abs(delta_sum) / self.per_notch, _DECIMALS) + 0.5), MAX_NOTCHES)

    def remainder(self, delta_sum: float) -> float:
        """Returns the exact number of notches minus the whole number that `notches` returns.

        The result is at most half a notch, unless the scroll has more than `MAX_NOTCHES`.
        """
        whole = copysign(self.notches(delta_sum), delta_sum)
        return round(delta_sum / self.per_notch - whole, _DECIMALS)


@dataclass(frozen=True)
class Wheel:
    """Unit and sign of the wheel deltas of a recording.

    Attributes:
        rule: rule for scrolls whose unit is certain.
        either: rule for scrolls whose unit is unclear (see `is_unclear`). Assumes notches until the
            video decides.
        glides: whether the deltas come from a touchpad. Deltas of 0 are then phases of a gesture,
            and scrolls have momentum.
        unclear: whether the unit is unclear for all scrolls of the recording.
        detents: whether a single number in `PARTS_OF_A_NOTCH` divides all deltas above 1. A delta
            of 1 may then be a notch.
    """

    rule: _WheelRule
    either: _WheelRule
    glides: bool = False
    unclear: bool = False
    detents: bool = False

    def is_unclear(self, deltas: Iterable[float]) -> bool:
        """Returns whether the deltas of a scroll may be either notches or 120ths of a notch."""
        return self.unclear or (self.detents and all(abs(delta) == 1 for delta in deltas))

    def rule_of(self, *, unclear: bool) -> _WheelRule:
        """Returns the rule for a scroll; `unclear` is the result of `is_unclear`."""
        return self.either if unclear else self.rule


@dataclass(frozen=True)
class WheelVote:
    """The evidence in the video about the wheel of a recording.

    Attributes:
        positive: direction in which a positive delta scrolls, or None if too few votes agree.
        votes: number of scrolls that show a sign because their content moved vertically.
        agreeing: number of votes for the more frequent sign.
        sideways: directions of the scrolls whose content moved horizontally, as a dictionary with
            action indexes as keys.
        unclear: direction and unit of the scrolls whose unit is unclear in the log, as a dictionary
            with action indexes as keys. A lone scroll that contradicts the usual sign of its unit
            is left out.
    """

    positive: Vertical | None = None
    votes: int = 0
    agreeing: int = 0
    sideways: Mapping[int, Horizontal] = field(default_factory=dict)
    unclear: Mapping[int, tuple[Direction, VideoUnit]] = field(default_factory=dict)


@dataclass(frozen=True)
class ScrollEvidence:
    """A scroll in the log, and the motion of the content in the video.

    Attributes:
        action_index: index of the action that is the scroll.
        delta_sum: sum of the logged deltas, never 0.
        content_moves: number of frames for each direction in which the content moved.
        pixels: total motion of the content in video pixels.
        unclear: whether the unit of the deltas is unclear in the log.
    """

    action_index: int
    delta_sum: float
    content_moves: Mapping[Direction, int]
    pixels: float = 0.0
    unclear: bool = False


def direction_of(delta: float, positive: Vertical) -> Vertical:
    """Returns the direction in which `delta` scrolls if a positive delta scrolls `positive`.

    The function is its own inverse: with the direction of the scroll as `positive`, it returns the
    direction in which positive deltas scroll.
    """
    opposite: Vertical = "up" if positive == "down" else "down"
    return positive if delta > 0 else opposite


def read_wheel(turns: Sequence[Input], platform: str, settings: ActionSettings) -> Wheel:
    """Finds unit and sign of the wheel deltas of a recording.

    The first case that applies decides:

    - On macOS, unless all deltas are multiples of 120, deltas are pixels, and positive deltas
      scroll up.
    - If any delta is too large to be a number of notches, deltas are 120ths of a notch, and
      positive deltas scroll down, as documented.
    - If deltas are mostly 1, or have fractions, they are notches, and positive deltas scroll up.
    - If the deltas of any scroll would add up to too many notches, deltas are 120ths of a notch,
      and positive deltas scroll down.
    - In all other cases, the unit is unclear.

    Args:
        turns: all wheel events of the log, in time order.
        platform: platform of the recording.
        settings: the section `actions`. `wheel_sign` overrides the sign, but not the unit.
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
    has_detents = _are_multiples_of_a_part([size for size in sizes if size > 1])
    return Wheel(parts, notches, glides=not has_detents, detents=has_detents)


def _are_multiples_of_a_part(sizes: Sequence[float]) -> bool:
    """Returns whether a single number in `PARTS_OF_A_NOTCH` divides the sizes of all deltas."""
    return any(all(size % part == 0 for size in sizes) for part in PARTS_OF_A_NOTCH)


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
    """Returns the largest absolute sum of consecutive deltas with equal sign and no long break."""
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


def video_direction(content_moves: Mapping[Direction, int]) -> Direction | None:
    """Returns the direction of a scroll, which is opposite to the motion of its content.

    Returns None if no frame has motion, or if less than `MIN_VOTE_SHARE` of the frames with motion
    agree. A horizontal scroll needs `MIN_SIDEWAYS_FRAMES` frames with motion, and all must agree.

    Args:
        content_moves: number of frames for each direction in which the content moved.
    """
    if not content_moves:
        return None
    moves = Counter(content_moves)
    direction, count = moves.most_common(1)[0]
    is_sideways = direction in {"left", "right"}
    if is_sideways and (count < MIN_SIDEWAYS_FRAMES or count < moves.total()):
        return None
    return _OPPOSITE[direction] if count >= MIN_VOTE_SHARE * moves.total() else None


# If the unit is a notch, a delta of 1 moves the content by at least 6 video pixels. A notch moves
# 48 to 120 pixels (three lines), but the frames may show only a part of the motion.
_LEAST_OF_A_NOTCH = 6.0
# If the unit is a 120th of a notch, a delta of 1 moves the content by at most 3 video pixels. A
# 120th of a notch moves at most one pixel.
_MOST_OF_A_PART = 3.0


def video_unit(pixels: float) -> VideoUnit | None:
    """Returns the unit of deltas, or None if the motion of the content does not show the unit.

    `pixels` is the motion of the content in video pixels for each unit of the delta.
    """
    if pixels >= _LEAST_OF_A_NOTCH:
        return "notch"
    return "120" if pixels <= _MOST_OF_A_PART else None


def video_notches(delta_sum: float, unit: VideoUnit | None) -> int:
    """Returns the number of notches of a scroll with this unit, or 0 if the unit is unknown."""
    if unit is None:
        return 0
    per_notch = UNITS_PER_NOTCH if unit == "120" else 1
    return _WheelRule(unit, "up", EVIDENCE, per_notch).notches(delta_sum)


def count_votes(scrolls: Iterable[ScrollEvidence]) -> WheelVote:
    """Lets the scrolls of a recording vote for the direction of positive deltas.

    A scroll votes if its content moved vertically in the video and its unit is clear. At least
    `MIN_VOTE_SHARE` of the votes must agree.
    """
    signs: Counter[Vertical] = Counter()
    sideways: dict[int, Horizontal] = {}
    unclear_scrolls: list[ScrollEvidence] = []
    for scroll in scrolls:
        shown_by_video = video_direction(scroll.content_moves)
        if scroll.unclear:
            unclear_scrolls.append(scroll)
            continue
        match shown_by_video:
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


# The direction in which positive deltas usually scroll, for each unit.
_RULE_OF_UNIT: Mapping[VideoUnit, Vertical] = {"120": "down", "notch": "up"}


def _unclear_units(scrolls: Iterable[ScrollEvidence]) -> dict[int, tuple[Direction, VideoUnit]]:
    """Finds direction and unit in the video for scrolls whose unit is unclear in the log.

    A vertical scroll that contradicts the usual sign of its unit is left out, unless at least
    `MIN_VOTES_AGAINST_RULE` scrolls of the unit contradict the usual sign.

    Returns:
        A dictionary from action indexes to the direction and the unit of the scroll.
    """
    units: dict[int, tuple[Direction, VideoUnit]] = {}
    against: dict[int, VideoUnit] = {}
    for scroll in scrolls:
        direction = video_direction(scroll.content_moves)
        unit = video_unit(scroll.pixels / abs(scroll.delta_sum))
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
    """Returns whether the video contradicts the direction of a scroll in actions.parquet.

    Returns None if the video does not show the sign, or if the only scroll that shows the sign
    contradicts `rule_direction`.

    Args:
        rule_direction: direction in actions.parquet, which follows from the unit or a setting.
    """
    if is_sign_doubtful(delta_sum, rule_direction, vote):
        return None
    return _contradicts_rule(delta_sum, rule_direction, vote)


def is_sign_doubtful(delta_sum: float | None, rule_direction: str | None, vote: WheelVote) -> bool:
    """Returns whether the direction of a scroll is unknown.

    The direction is unknown if the video contradicts `rule_direction`, the direction in
    actions.parquet, but only a single scroll shows the sign.
    """
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
    """Returns the direction that the video shows for a scroll, or None.

    If the content of the scroll moved horizontally, this motion decides. Otherwise, the direction
    follows from the sign on which the scrolls of the recording agree. The result is None if a
    setting decides the sign, if the video shows no direction, or if `is_sign_doubtful` is true.

    Args:
        rule_direction: direction in actions.parquet, which follows from the unit or a setting.
        method: `wheel_method` of the scroll. A sign from the settings (`override`) always decides.
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


# Longest time between two wheel events that come from the momentum of a touchpad scroll.
MOMENTUM_GAP_MS = 150
# Reason in ledger.parquet for wheel events that together are too small for a scroll.
BELOW_HALF_NOTCH = "below_half_notch"
UNCLEAR_UNIT = "unclear_wheel_unit"  # flag for a scroll whose unit is unclear in the log


@dataclass
class _Burst:
    """Wheel events that follow each other closely at the same place, in one or both directions.

    Attributes:
        turns: events with a delta other than 0, in time order. There is at least one.
        phases: events with a delta of 0, which mark the phases of a touchpad gesture.
    """

    turns: list[Gesture]
    phases: list[Gesture] = field(default_factory=list)

    def end(self) -> int:
        """Returns the time of the last event, epoch milliseconds."""
        last_events = (*self.turns[-1:], *self.phases[-1:])
        return max(event.start for event in last_events)


@dataclass
class _DirectionPart:
    """Wheel events of a scroll in a single direction.

    Events in the opposite direction are included if together they have less than half a notch.

    Attributes:
        turns: the wheel events, in time order.
        total: sum of the deltas.
        rule: unit and sign of the deltas.
    """

    turns: list[Gesture]
    total: float
    rule: _WheelRule

    def absorbs(self, run: "_DirectionPart") -> bool:
        """Adds the events of `run` if they belong to the same scroll.

        Returns whether the events were added.

        The events of `run` come later. They belong to another scroll if they go in the opposite
        direction and both parts have at least half a notch.
        """
        is_small = not self.rule.notches(self.total) or not self.rule.notches(run.total)
        if not is_small and (self.total > 0) != (run.total > 0):
            return False
        self.turns += run.turns
        self.total += run.total
        return True


def join_scrolls(
    gestures: Sequence[Gesture], settings: ActionSettings, reasons: dict[int, str], wheel: Wheel
) -> tuple[list[Gesture], float]:
    """Replaces the wheel events in a list of gestures with scrolls.

    Scrolls whose unit is unclear in the log get the flag `UNCLEAR_UNIT`.

    Args:
        reasons: maps line numbers of events to the reason why the event belongs to no action. Wheel
            events that belong to no scroll are added.

    Returns:
        All gestures in time order, and the sum of all logged deltas in notches minus the signed
        notches of the scrolls.
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
    """Divides the wheel events of a recording into bursts.

    A burst ends after a break longer than `scroll_gap_ms`, another gesture, a change of the
    modifiers, or a move of the pointer. Breaks shorter than `pause_ms` do not end a burst of less
    than half a notch, which is too small for an action. If there is no break, the momentum of a
    touchpad always continues the burst.

    Args:
        reasons: maps line numbers of events to the reason why the event belongs to no action.
            Events with a delta of 0 that belong to no burst are added.
    """
    bursts: list[_Burst] = []
    early_phases: list[Gesture] = []  # events with a delta of 0 before the first movement
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
            burst = _Burst([gesture])
            too_early: list[Gesture] = []
            for phase in early_phases:
                if gesture.start - phase.start <= settings.scroll_gap_ms:
                    burst.phases.append(phase)
                else:
                    too_early.append(phase)
            bursts.append(burst)
            early_phases = too_early
        is_interrupted = False
    for phase in early_phases:
        reasons.update(dict.fromkeys(phase.events, "zero_delta"))
    return bursts


def _is_momentum(burst: _Burst, gesture: Gesture) -> bool:
    """Returns whether a wheel event comes from the momentum of a touchpad and continues a burst."""
    last = burst.turns[-1]
    is_same_direction = (gesture.delta > 0) == (last.delta > 0)
    is_slower = abs(gesture.delta) <= abs(last.delta)
    is_soon = gesture.start - burst.end() <= MOMENTUM_GAP_MS
    return is_same_direction and is_slower and is_soon


def _directions(turns: list[Gesture], rule: _WheelRule) -> list[list[Gesture]]:
    """Splits the wheel events of a burst where they reverse by at least half a notch."""
    parts: list[_DirectionPart] = []
    for _, in_one_direction in groupby(turns, key=lambda turn: turn.delta > 0):
        run = list(in_one_direction)
        part = _DirectionPart(run, sum(_deltas(run)), rule)
        if not parts or not parts[-1].absorbs(part):
            parts.append(part)
    return [part.turns for part in parts]


def _scroll(turns: Sequence[Gesture], phases: Sequence[Gesture]) -> Gesture:
    """Returns a scroll, given its wheel events and the phases of its touchpad gesture."""
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
