"""The files of a dataset that are for people: its card, and the charts that the card shows."""

import re
from collections.abc import Iterator
from pathlib import Path

CARD = "README.md"
CHARTS_FOLDER = "plots"
_CHART = re.compile(rf"{CHARTS_FOLDER}/\w+\.png")


def card_files(folder: Path) -> set[str]:
    """The card of a dataset, and the charts that it shows: paths below the dataset's folder."""
    card = folder / CARD
    text = card.read_text("utf-8", "replace") if card.is_file() else ""
    return {CARD, *_CHART.findall(text)}


def missing_card_files(folder: Path) -> Iterator[str]:
    """Yield the files of `card_files` that do not exist, and the card if it is empty."""
    for name in sorted(card_files(folder)):
        path = folder / name
        if not path.is_file() or not path.stat().st_size:
            yield name
