"""Bar charts as PNG files, the same bytes for the same numbers.

Belongs here: drawing. OpenCV's own letters are used, so that no font of the machine matters; they
are ASCII, and other characters of a label become "?".
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from demo_pipeline.datasets.dataset_stats import DatasetStats

CHARTS_FOLDER = "plots"
MOST_BARS = 15
_WIDTH, _ROW, _TOP, _MARGIN, _LABELS, _VALUES = 640, 26, 44, 14, 190, 70
_INK, _PALE, _BAR = (60, 50, 40), (232, 228, 224), (176, 120, 60)  # BGR
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_BINS = ((1, 1), (2, 5), (6, 10), (11, 15), (16, 25), (26, 50), (51, 100))


def draw_charts(facts: DatasetStats) -> dict[str, bytes]:
    """The charts of a dataset as PNG bytes, by file name without `.png`."""
    splits = {name: split.samples for name, split in facts.splits.items()}
    wanted: dict[str, tuple[str, Mapping[str, int]]] = {
        "actions": ("Samples by action", facts.actions),
        "lengths": ("Trajectories by number of samples", _binned(facts.lengths)),
        "applications": ("Trajectories by application", facts.applications),
        "resolutions": ("Trajectories by recorded screen", facts.resolutions),
    }
    if splits:
        wanted["splits"] = ("Samples by split", splits)
    return {name: bar_chart(title, bars) for name, (title, bars) in wanted.items()}


def write_charts(out: Path, facts: DatasetStats) -> list[str]:
    """Write `plots/<name>.png` below `out`; the paths in order."""
    folder = out / CHARTS_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    drawn = draw_charts(facts)
    for name, png in drawn.items():
        (folder / f"{name}.png").write_bytes(png)
    return [f"{CHARTS_FOLDER}/{name}.png" for name in drawn]


def read_charts(out: Path) -> dict[str, bytes]:
    """The charts that were written for a dataset, PNG bytes by name."""
    return {path.stem: path.read_bytes() for path in sorted((out / CHARTS_FOLDER).glob("*.png"))}


def bar_chart(title: str, bars: Mapping[str, int]) -> bytes:
    """Horizontal bars, in the order given, as PNG bytes; beyond `MOST_BARS` the rest is one bar.

    Args:
        title: above the bars.
        bars: label → value, none negative.
    """
    shown = _shortened(list(bars.items())) or [("nothing yet", 0)]
    height = _TOP + _ROW * len(shown) + _MARGIN
    image = np.full((height, _WIDTH, 3), 255, np.uint8)
    _write(image, title, (_MARGIN, 26), 0.55)
    room = _WIDTH - _LABELS - _VALUES - _MARGIN
    most = max(1, *(value for _, value in shown))
    for number, (label, value) in enumerate(shown):
        top = _TOP + _ROW * number
        left, right = _LABELS, _LABELS + round(room * value / most)
        cv2.rectangle(image, (left, top + 3), (left + room, top + _ROW - 5), _PALE, cv2.FILLED)
        if value:
            cv2.rectangle(image, (left, top + 3), (right, top + _ROW - 5), _BAR, cv2.FILLED)
        _write(image, _fitted(label), (_MARGIN, top + 17), 0.42)
        _write(image, str(value), (left + room + 8, top + 17), 0.42)
    return bytes(cv2.imencode(".png", image, [cv2.IMWRITE_PNG_COMPRESSION, 9])[1])


def _write(image: NDArray[np.uint8], text: str, place: tuple[int, int], scale: float) -> None:
    plain = text.encode("ascii", "replace").decode("ascii")
    cv2.putText(image, plain, place, _FONT, scale, _INK, 1, cv2.LINE_AA)


def _fitted(label: str, most: int = 24) -> str:
    return label if len(label) <= most else f"{label[: most - 2]}.."


def _shortened(bars: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    if len(bars) <= MOST_BARS:
        return list(bars)
    rest = bars[MOST_BARS - 1 :]
    return [*bars[: MOST_BARS - 1], (f"{len(rest)} others", sum(value for _, value in rest))]


def _binned(lengths: Mapping[int, int]) -> dict[str, int]:
    """Trajectories by length in bins, from the first that is not empty to the last."""
    bins = {_bin_name(low, high): _within(lengths, low, high) for low, high in _BINS}
    bins[f"over {_BINS[-1][1]}"] = _within(lengths, _BINS[-1][1] + 1, max([0, *lengths]))
    used = [number for number, count in enumerate(bins.values()) if count]
    return dict(list(bins.items())[used[0] : used[-1] + 1]) if used else {}


def _bin_name(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def _within(lengths: Mapping[int, int], low: int, high: int) -> int:
    return sum(count for length, count in lengths.items() if low <= length <= high)
