"""Finds the files of a dataset that only people read: its card, and the charts in the card."""

import re
from collections.abc import Iterator
from pathlib import Path

CARD = "README.md"  # the dataset card
CHARTS_FOLDER = "plots"  # charts are PNG files in this folder
_CHART = re.compile(rf"{CHARTS_FOLDER}/\w+\.png")


def card_files(folder: Path) -> set[str]:
    """Returns the paths of the card and its charts, relative to the folder of the dataset."""
    card = folder / CARD
    text = card.read_text("utf-8", "replace") if card.is_file() else ""
    return {CARD, *_CHART.findall(text)}


def missing_card_files(folder: Path) -> Iterator[str]:
    """Yields the files of `card_files` that are missing or empty."""
    for name in sorted(card_files(folder)):
        path = folder / name
        if not path.is_file() or not path.stat().st_size:
            yield name
