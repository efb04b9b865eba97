"""Bar charts as PNG files, the same bytes for the same numbers.

Belongs here: drawing. OpenCV's built-in font is used, so that the fonts of the machine do not
matter; it is ASCII only, and other characters of a label become "?".
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from demo_pipeline.exports.dataset_counts import DatasetStats

CHARTS_FOLDER = "plots"
MOST_BARS = 15
_WIDTH, _ROW, _TOP, _MARGIN, _LABELS, _VALUES = 640, 26, 44, 14, 190, 70
_INK, _PALE, _BAR = (60, 50, 40), (232, 228, 224), (176, 120, 60)  # BGR
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_BINS = ((1, 1), (2, 5), (6, 10), (11, 15), (16, 25), (26, 50), (51, 100))


def draw_charts(stats: DatasetStats) -> dict[str, bytes]:
    """The charts of a dataset as PNG bytes, by file name without `.png`."""
    splits = {name: split.samples for name, split in stats.splits.items()}
    bars: dict[str, tuple[str, Mapping[str, int]]] = {
        "actions": ("Samples by action", stats.actions),
        "lengths": ("Trajectories by number of samples", _binned(stats.lengths)),
        "applications": ("Trajectories by application", stats.applications),
        "resolutions": ("Trajectories by recorded screen", stats.resolutions),
    }
    if splits:
        bars["splits"] = ("Samples by split", splits)
    return {name: bar_chart(title, counts) for name, (title, counts) in bars.items()}


def write_charts(out: Path, stats: DatasetStats) -> list[str]:
    """Write `plots/<name>.png` below `out`; returns the paths."""
    folder = out / CHARTS_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    images = draw_charts(stats)
    for name, png in images.items():
        (folder / f"{name}.png").write_bytes(png)
    return [f"{CHARTS_FOLDER}/{name}.png" for name in images]


def bar_chart(title: str, bars: Mapping[str, int]) -> bytes:
    """Draw horizontal bars in the given order; the last of `MOST_BARS` bars sums up the rest.

    Args:
        title: text above the bars.
        bars: label → value, not negative.

    Returns:
        PNG bytes.
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


def _write(image: NDArray[np.uint8], text: str, position: tuple[int, int], scale: float) -> None:
    ascii_text = text.encode("ascii", "replace").decode("ascii")
    cv2.putText(image, ascii_text, position, _FONT, scale, _INK, 1, cv2.LINE_AA)


def _fitted(label: str, most: int = 24) -> str:
    return label if len(label) <= most else f"{label[: most - 2]}.."


def _shortened(bars: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    if len(bars) <= MOST_BARS:
        return list(bars)
    rest = bars[MOST_BARS - 1 :]
    return [*bars[: MOST_BARS - 1], (f"{len(rest)} others", sum(value for _, value in rest))]


def _binned(lengths: Mapping[int, int]) -> dict[str, int]:
    """Trajectories by length in bins, from the first to the last bin that is not empty."""
    bins = {_bin_name(low, high): _within(lengths, low, high) for low, high in _BINS}
    bins[f"over {_BINS[-1][1]}"] = _within(lengths, _BINS[-1][1] + 1, max([0, *lengths]))
    used = [number for number, count in enumerate(bins.values()) if count]
    return dict(list(bins.items())[used[0] : used[-1] + 1]) if used else {}


def _bin_name(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def _within(lengths: Mapping[int, int], low: int, high: int) -> int:
    return sum(count for length, count in lengths.items() if low <= length <= high)
