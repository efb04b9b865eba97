"""Presses whose place a recorder may have cut to the border of the screen.

Some recorders log every position cut to the main display. While the pointer is on another display,
its logged positions run along the border. Belongs here: finding the presses, releases and wheel
events after such a run. Whether the line is the screen's border is decided where its size is known.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from demo_pipeline.actions.inputs import Input
from demo_pipeline.formats.demonstration.event_types import EventType

BORDER_RUN = "border_run"  # flag of an action after motion along the log's outermost line
# Of 4,000 simulated approaches to a point on the border 0.03 % moved along it for so long or so
# far; of 4,000 to points at least 20 pixels beyond it, cut to the border, 99.98 %. So did 18 % of
# those that the border of a single screen stopped 5 pixels early.
_MOVED_MS = 60
_MOVED_UNITS = 10.0
_REST_MS = 100  # from one position to the next; in a longer time the pointer rested


def after_border_runs(inputs: Sequence[Input]) -> set[int]:
    """Line numbers of presses, releases and wheel events on a border, after motion along it.

    The borders are x = 0, y = 0 and the log's largest x and y; a log with a position left of or
    above 0 is not cut there.

    Args:
        inputs: in time order, with the positions of presses filled in.
    """
    placed = [item for item in inputs if item.x is not None and item.y is not None]
    found: set[int] = set()
    for axis in (0, 1):
        values = [_point(item)[axis] for item in placed]
        for border in {max(values, default=0.0), min(values, default=0.0)}:
            if border >= 0 and (border == 0 or border == max(values)):
                found.update(_after_runs(placed, axis, border))
    return found


def _after_runs(placed: Sequence[Input], axis: int, border: float) -> Iterator[int]:
    """Those at one border: where coordinate number `axis` is `border`."""
    for on_border, group in groupby(placed, key=lambda item: _point(item)[axis] == border):
        run = list(group)
        moved = _moved(run, 1 - axis) if on_border else len(run)
        # Before the log's first position, only what follows shows where the pointer was.
        begins = run[0] is placed[0] and moved < len(run)
        for item in run[0 if begins else moved :]:
            if item.kind != EventType.MOUSEMOVE:
                yield item.index


def _moved(run: Sequence[Input], axis: int) -> int:
    """How many positions of a run it takes until the pointer moved enough; all: it never did."""
    moved_ms, moved_units = 0, 0.0
    for count, (before, after) in enumerate(pairwise(run), 1):
        if after.kind == EventType.MOUSEMOVE and after.time - before.time <= _REST_MS:
            moved_ms += after.time - before.time
        moved_units += abs(_point(after)[axis] - _point(before)[axis])
        if moved_ms >= _MOVED_MS or moved_units >= _MOVED_UNITS:
            return count
    return len(run)


def _point(item: Input) -> tuple[float, float]:
    return item.x or 0.0, item.y or 0.0
