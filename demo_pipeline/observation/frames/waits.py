"""Waits: pauses in which the screen kept changing and the user acted once it was at rest.

Belongs here: the rule that turns a `pause` into a `wait`. Other pauses are thinking.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.request_progress import RequestProgress

BUSY_GAP_S = 0.45  # seconds; closer changes are one busy stretch; a text cursor blinks more slowly
BUSY_CHANGES = 4  # changes in one busy stretch; fewer may be chance
PAUSE_S = 2.0  # seconds; a screen left at rest for longer was read, not waited for
MIN_WAIT_S = 1.0  # seconds; a screen at rest sooner shows the action's own effect


@dataclass(frozen=True)
class Wait:
    """A pause that was a wait.

    Attributes:
        action_index: row of actions.parquet.
        seconds: length of the pause.
        rest_s: video time at which the screen came to rest.
    """

    action_index: int
    seconds: float
    rest_s: float


def find_wait(pause: RequestProgress, following: FrameRequest, seconds: float) -> Wait | None:
    """The wait that a pause of `seconds` was, judged by the action after it; None: thinking."""
    rest_s = rest_start(pause.small_changes, pause.changes)
    if rest_s is None or not is_wait(rest_s, pause.request.since, following.press, following.limit):
        return None
    return Wait(pause.request.action_index, seconds, rest_s)


def rest_start(small: Sequence[float], significant: Sequence[float]) -> float | None:
    """When the screen came to rest: the last significant change or the end of a busy stretch.

    Args:
        small: times at which any cell changed, ascending seconds.
        significant: times of changes beyond noise and hover effects, ascending seconds.
    """
    ends = list(significant[-1:])
    stretch: list[float] = []
    for time in small:
        if stretch and time - stretch[-1] > BUSY_GAP_S:
            stretch = []
        stretch.append(time)
        if len(stretch) >= BUSY_CHANGES:
            ends.append(time)
    return max(ends, default=None)


def is_wait(rest: float | None, action_end: float, press: float, limit: float) -> bool:
    """Whether the screen kept changing after an action and the user acted once it was at rest.

    A user who leaves the resting screen alone for as long as a pause was thinking, unless the
    screen itself had been changing for as long as a pause.

    Args:
        rest: when the screen came to rest; this and all times are video seconds.
        action_end: when the action before the pause ended.
        press: when the action after the pause began.
        limit: the latest time of a frame for that action: `press` less its least lead.
    """
    if rest is None or rest > limit:
        return False
    changing, resting = rest - action_end, press - rest
    return changing >= PAUSE_S or (changing >= MIN_WAIT_S and resting <= PAUSE_S)
