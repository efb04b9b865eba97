"""`make pictures`: draws the pictures of the documentation into `docs/images/`.

Each module draws its own files. `make pictures PICTURES=strip` draws only the files of `strip`.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from demo_pipeline_tests.pages import DOCS
from demo_pipeline_tests.pictures import review, sheet, strip, ui
from demo_pipeline_tests.pictures.sample_store import build_sample_store

IMAGES = DOCS / "images"
# Name → function that draws pictures into a folder. Arguments: the folder of the store with the two
# desktop recordings in `data/samples/`, and the folder for the pictures.
DRAWINGS: dict[str, Callable[[Path, Path], list[Path]]] = {
    "strip": strip.draw,
    "contact_sheet": sheet.draw,
    "review": review.draw,
    "ui": ui.draw,
}


def main() -> int:
    """Draws the chosen pictures, and prints their names and sizes."""
    parser = argparse.ArgumentParser(prog="make pictures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(DRAWINGS))
    names = parser.parse_args().names or list(DRAWINGS)
    if unknown := [name for name in names if name not in DRAWINGS]:
        parser.error(f"there is no picture {unknown[0]!r}; choose from {', '.join(DRAWINGS)}")
    with tempfile.TemporaryDirectory() as folder:
        root = build_sample_store(Path(folder))
        for name in names:
            for picture in DRAWINGS[name](root, IMAGES):
                sys.stdout.write(f"{picture.name}: {picture.stat().st_size // 1000} kB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
