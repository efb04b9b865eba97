"""Waits: pauses in which the screen kept changing and the person acted once it had settled.

Belongs here: the evidence rule that turns a `pause` into a `wait` (formats note 2).
"""

from collections.abc import Sequence

BUSY_GAP_S = 0.45  # changes closer than this belong together; a text cursor blinks more slowly
BUSY_CHANGES = 4
PAUSE_S = 2.0
MIN_WAIT_S = 1.0  # what settles sooner is the action's own effect, not something waited for


def rest_start(small: Sequence[float], large: Sequence[float]) -> float | None:
    """When the screen came to rest: the end of the last busy stretch, or the last large change.

    Args:
        small: times at which any cell changed, ascending seconds.
        large: times at which much changed, ascending seconds.
    """
    ends = list(large[-1:])
    run: list[float] = []
    for time in small:
        if run and time - run[-1] > BUSY_GAP_S:
            run = []
        run.append(time)
        if len(run) >= BUSY_CHANGES:
            ends.append(time)
    return max(ends, default=None)


def is_wait(settled: float | None, action_end: float, press: float, limit: float) -> bool:
    """The screen kept changing after the action, and the person acted once it had settled.

    Who lets the settled screen lie as long as a pause was thinking, unless the screen alone had
    taken as long as a pause. Times are video seconds; `limit` is `press` less its guard.
    """
    if settled is None or settled > limit:
        return False
    changing, resting = settled - action_end, press - settled
    return changing >= PAUSE_S or (changing >= MIN_WAIT_S and resting <= PAUSE_S)
