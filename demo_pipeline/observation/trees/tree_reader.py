"""The UI trees of one log: each scan is read and mapped once, as long as steps are near it."""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from demo_pipeline.observation.calibration.canvas import Canvas
from demo_pipeline.observation.trees.scans import LoggedScan, read_scan
from demo_pipeline.observation.trees.step_tree import StepTree, map_tree
from demo_pipeline.problems import DemonstrationError


class TreeReader:
    """Reads and maps scans of one log; keeps the last two, which neighbouring actions share.

    A scan that cannot be read, or in which nothing has an area, counts as none.

    Args:
        log: input_log.jsonl.
        platform: meta.platform.
        scales: units of the log for one of the trees, from these lines on; None: in doubt.
    """

    def __init__(
        self, log: Path, platform: str, scales: Mapping[int, float | None] = MappingProxyType({})
    ) -> None:
        self.log = log
        self._scales = scales
        self.platform = platform
        self._kept: deque[tuple[int, StepTree]] = deque(maxlen=2)

    def tree(self, scan: LoggedScan | None, press_ms: int, canvas: Canvas) -> StepTree:
        """The tree of `scan`; without a usable scan, only a root."""
        if scan is None:
            return map_tree(None, press_ms, self.platform, canvas)
        tree = self._kept_tree(scan, canvas)
        if tree is None:
            tree = self._read(scan, press_ms, canvas)
            self._kept.append((scan.event_index, tree))
        return tree

    def readable_tree(self, scan: LoggedScan, canvas: Canvas) -> StepTree | None:
        """The tree of a scan; None when it is of no use."""
        tree = self._kept_tree(scan, canvas)
        if tree is None:
            tree = self._read(scan, scan.end_ms, canvas)
            if tree.readable:  # else it has a time, which is that of the press for a step's tree
                self._kept.append((scan.event_index, tree))
        return tree if tree.readable else None

    def scale(self, scan: LoggedScan) -> float | None:
        """Units of the log for one of a scan's boxes; None: in doubt."""
        lines = [line for line in self._scales if line <= scan.event_index]
        return self._scales[max(lines)] if lines else 1.0

    def _kept_tree(self, scan: LoggedScan, canvas: Canvas) -> StepTree | None:
        same = (
            tree
            for event, tree in self._kept
            if event == scan.event_index and tree.canvas == canvas
        )
        return next(same, None)

    def _read(self, scan: LoggedScan, time_ms: int, canvas: Canvas) -> StepTree:
        """Read a scan; `time_ms`: of the root that stands for one that cannot be used."""
        try:
            tree = map_tree(read_scan(self.log, scan), scan.time_ms, self.platform, canvas)
        except DemonstrationError:
            tree = map_tree(None, time_ms, self.platform, canvas)
        scale = self.scale(scan)
        if scale is not None and scale != 1.0:
            tree = replace(tree, boxes=tree.boxes * scale)
        if not tree.says_something:
            tree = replace(map_tree(None, time_ms, self.platform, canvas), readable=False)
        return tree
