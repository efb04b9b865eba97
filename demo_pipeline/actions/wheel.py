"""The wheel: what a recording's deltas mean, what the video shows, and which of the two counts.

Recorders write deltas in three units and two signs. Three steps decide the direction of a scroll:

1. rule: `wheel_rule` reads unit and sign from a scroll's deltas, the platform and the settings;
2. evidence: `count_votes` counts in how many scrolls the video shows each sign;
3. verdict: `scroll_direction` takes the direction that the video shows, else the rule's.

Everything here is a pure function of plain values. Content that moves in the video is measured in
observation/frames/scroll_motion.py.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import copysign, floor
from typing import Literal

from demo_pipeline.settings import ActionSettings

UNITS_PER_NOTCH = 120  # WHEEL_DELTA: what Windows counts for one detent
# What fine wheels and touchpads send at a time. Below 10, the delta may as well count notches.
PARTS_OF_A_NOTCH = (120, 60, 40, 30, 24, 20, 15, 12, 10)
MAX_EVENT_NOTCHES = 10  # one event of a wheel that spins freely has fewer
MIN_UNIT_SCROLLS = 3  # scrolls of a recording in one unit; with fewer the unit is uncertain
MAX_NOTCHES = 2**31 - 1  # the column `amount` has 32 bits
_DECIMALS = 6  # of notches: sums of fractions are not exact
MIN_VOTE_SHARE = 0.75  # of the votes, and of a scroll's moving frames, must agree
MIN_SIDEWAYS_FRAMES = 2  # horizontal scrolls are rare: one moving frame is no evidence
OVERRIDE, EVIDENCE = "override", "evidence"  # of the values of `wheel_method`

Vertical = Literal["up", "down"]
Horizontal = Literal["left", "right"]
Direction = Literal["up", "down", "left", "right"]
_OPPOSITE: Mapping[str, Direction] = {"up": "down", "down": "up", "left": "right", "right": "left"}


@dataclass(frozen=True)
class WheelRule:
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
    """The direction in which `delta` scrolls when a positive delta scrolls `positive`."""
    opposite: Vertical = "up" if positive == "down" else "down"
    return positive if delta > 0 else opposite


def positive_direction(delta: float, direction: Vertical) -> Vertical:
    """The direction in which a positive delta scrolls when `delta` scrolled `direction`."""
    return direction_of(delta, direction)  # the same flip, read backwards


def logs_pixels(deltas: Iterable[float], platform: str) -> bool:
    """Whether a recording counts in pixels: on macOS, unless all its deltas are whole notches."""
    return platform == "macos" and any(delta % UNITS_PER_NOTCH for delta in deltas)


def parts_of_a_notch(deltas: Iterable[float]) -> frozenset[int]:
    """The parts of 120 of which all `deltas` are multiples."""
    fitting = set(PARTS_OF_A_NOTCH)
    for delta in deltas:
        fitting = {part for part in fitting if delta % part == 0}
        if not fitting:
            break
    return frozenset(fitting)


def wheel_rule(
    deltas: Sequence[float], settings: ActionSettings, *, in_pixels: bool = False
) -> WheelRule:
    """The rule for one scroll with these deltas, none of them 0.

    In a recording that counts in pixels, positive scrolls up. Elsewhere deltas that are all
    multiples of a part of 120 follow the documented convention: 120 a notch, positive scrolls down.
    Other deltas are notches or fractions of one, positive scrolls up: so write recorders that
    divide by 120 themselves. `settings.wheel_sign` overrides the sign, not the unit.
    """
    if in_pixels:
        rule = WheelRule("pixel", "up", "unit_signature", settings.macos_pixels_per_notch)
    elif parts_of_a_notch(deltas):
        rule = WheelRule("120", "down", "unit_signature", UNITS_PER_NOTCH)
    else:
        rule = WheelRule("notch", "up", "unit_signature", 1)
    if settings.wheel_sign == "auto":
        return rule
    positive: Vertical = "down" if settings.wheel_sign == "positive_down" else "up"
    return WheelRule(rule.unit, positive, OVERRIDE, rule.per_notch)


def is_plausible(deltas: Iterable[float], rule: WheelRule) -> bool:
    """Whether a hand can have turned so many notches; pixels and 120ths are not limited."""
    return rule.unit != "notch" or all(abs(delta) <= MAX_EVENT_NOTCHES for delta in deltas)


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
                signs[positive_direction(scroll.delta_sum, along)] += 1
    votes = signs.total()
    if not votes:
        return WheelVote(sideways=sideways)
    winner, agreeing = signs.most_common(1)[0]
    return WheelVote(
        winner if agreeing >= MIN_VOTE_SHARE * votes else None, votes, agreeing, sideways
    )


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
