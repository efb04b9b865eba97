"""The wheel's unit and sign, decided once per recording.

Belongs here: the order of trust of formats note "The wheel", all but the evidence from pictures,
which the stage that decodes adds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from demo_pipeline.settings import ActionSettings

NOTCH = 120  # seed 000: what Windows counts for one detent


@dataclass(frozen=True)
class WheelRule:
    """How to read `delta`.

    Attributes:
        unit: of the raw delta: 120ths of a notch, notches, or pixels.
        positive: the direction that a positive delta scrolls.
        method: `override`, `unit_signature` or `documented`.
        per_notch: raw units in one notch.
    """

    unit: Literal["120", "notch", "pixel"]
    positive: Literal["down", "up"]
    method: str
    per_notch: float

    def direction(self, delta: float) -> Literal["down", "up"]:
        """Where `delta` scrolls."""
        opposite: Literal["down", "up"] = "up" if self.positive == "down" else "down"
        return self.positive if delta > 0 else opposite

    def notches(self, delta_sum: float) -> int:
        """Whole notches of a burst, at least 1 and no more than a 32-bit column holds."""
        return min(max(1, round(abs(delta_sum) / self.per_notch)), 2**31 - 1)


def wheel_rule(deltas: Sequence[float], platform: str, settings: ActionSettings) -> WheelRule:
    """The rule for a recording whose non-zero wheel deltas are `deltas`.

    Every delta a multiple of 120: as documented. Otherwise the recorders' rule: positive = up, in
    pixels on macOS, in notches elsewhere. A recording without a wheel gets the documented rule.
    """
    documented = all(delta % NOTCH == 0 for delta in deltas)
    if documented:
        rule = WheelRule("120", "down", "unit_signature" if deltas else "documented", NOTCH)
    elif platform == "macos":
        rule = WheelRule("pixel", "up", "unit_signature", settings.macos_pixels_per_notch)
    else:
        rule = WheelRule("notch", "up", "unit_signature", 1)
    if settings.wheel_sign == "auto":
        return rule
    positive: Literal["down", "up"] = "down" if settings.wheel_sign == "positive_down" else "up"
    return WheelRule(rule.unit, positive, "override", rule.per_notch)
