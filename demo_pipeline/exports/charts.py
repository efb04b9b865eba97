"""Bar charts as PNG files, the same bytes for the same numbers.

Belongs here: drawing. OpenCV's built-in font is used, so that the fonts of the machine do not
matter; it is ASCII only, and other characters of a label become "?".
"""

from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from demo_pipeline.exports.dataset_counts import DatasetStats

_FOLDER = "plots"
MOST_BARS = 15
_WIDTH, _ROW, _TOP, _MARGIN, _LABELS, _VALUES = 640, 26, 44, 14, 190, 70
_INK, _PALE, _BAR = (60, 50, 40), (232, 228, 224), (176, 120, 60)  # BGR
_BINS = ((1, 1), (2, 5), (6, 10), (11, 15), (16, 25), (26, 50), (51, 100), (101, 10**9))


def write_charts(out: Path, stats: DatasetStats) -> None:
    """Write `plots/<name>.png` below `out`."""
    bars: dict[str, tuple[str, Mapping[str, int]]] = {
        "actions": ("Samples by action", stats.actions),
        "lengths": ("Trajectories by number of samples", _binned(stats.lengths)),
        "applications": ("Trajectories by application", stats.applications),
        "resolutions": ("Trajectories by recorded screen", stats.resolutions),
    }
    if stats.splits:
        splits = {name: split.samples for name, split in stats.splits.items()}
        bars["splits"] = ("Samples by split", splits)
    (out / _FOLDER).mkdir(parents=True, exist_ok=True)
    for name, (title, counts) in bars.items():
        (out / _FOLDER / f"{name}.png").write_bytes(bar_chart(title, counts))


def bar_chart(title: str, bars: Mapping[str, int]) -> bytes:
    """Draw horizontal bars in the given order; the last of `MOST_BARS` bars sums up the rest.

    Args:
        title: text above the bars.
        bars: label → value, not negative.

    Returns:
        PNG bytes.
    """
    shown = list(bars.items()) or [("nothing yet", 0)]
    if len(shown) > MOST_BARS:
        rest = [value for _, value in shown[MOST_BARS - 1 :]]
        shown = [*shown[: MOST_BARS - 1], (f"{len(rest)} others", sum(rest))]
    height = _TOP + _ROW * len(shown) + _MARGIN
    image = np.full((height, _WIDTH, 3), 255, np.uint8)
    _write(image, title, (_MARGIN, 26), 0.55)
    room = _WIDTH - _LABELS - _VALUES - _MARGIN
    most = max(1, *(value for _, value in shown))
    for number, (label, value) in enumerate(shown):
        top = _TOP + _ROW * number
        for length, colour in ((room, _PALE), (round(room * value / most), _BAR)):
            if length or value:
                end = (_LABELS + length, top + _ROW - 5)
                cv2.rectangle(image, (_LABELS, top + 3), end, colour, cv2.FILLED)
        _write(image, label if len(label) <= 24 else f"{label[:22]}..", (_MARGIN, top + 17), 0.42)
        _write(image, str(value), (_LABELS + room + 8, top + 17), 0.42)
    return bytes(cv2.imencode(".png", image, [cv2.IMWRITE_PNG_COMPRESSION, 9])[1])


def _write(image: NDArray[np.uint8], text: str, position: tuple[int, int], scale: float) -> None:
    ascii_text = text.encode("ascii", "replace").decode("ascii")
    font = cv2.FONT_HERSHEY_SIMPLEX
    cv2.putText(image, ascii_text, position, font, scale, _INK, 1, cv2.LINE_AA)


def _binned(lengths: Mapping[int, int]) -> dict[str, int]:
    """Trajectories by length in bins, from the first to the last bin that is not empty."""
    bins = [sum(n for size, n in lengths.items() if low <= size <= high) for low, high in _BINS]
    names = [str(low) if low == high else f"{low} to {high}" for low, high in _BINS[:-1]]
    names.append(f"over {_BINS[-2][1]}")
    used = [number for number, count in enumerate(bins) if count]
    found = list(zip(names, bins, strict=True))
    return dict(found[used[0] : used[-1] + 1]) if used else {}
