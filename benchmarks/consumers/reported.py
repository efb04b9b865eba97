"""What a consumer's script tells the runner: a line of JSON for every row of the table.

Each script is run as `python SCRIPT EXPORT MODEL` by the Python of its library, in a folder that is
not the dataset's. EXPORT is a copy of the datasets, MODEL a tiny Qwen-VL.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

MARK = "ROW "


def places() -> tuple[Path, Path]:
    """The folders EXPORT and MODEL."""
    export, model = map(Path, sys.argv[1:3])
    return export, model


def lines_of(path: Path) -> list[dict]:
    """The records of a file of JSON Lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def cudag(export: Path) -> Path:
    """The CUDAG directory, of which an export has one."""
    (folder,) = (export / "datasets").iterdir()
    return folder


def row(data: str, before: int, after: int, labels: int | None = None) -> None:
    """Report what became of a dataset.

    Args:
        data: which of our files.
        before: samples in them.
        after: samples after the consumer's own conversion.
        labels: tokens that the consumer learns from them; None when it makes none.
    """
    print(MARK + json.dumps([data, before, after, labels]), flush=True)


def rows_in(output: str) -> Iterator[list]:
    """The reported rows in what a script printed."""
    for line in output.splitlines():
        if line.startswith(MARK):
            yield json.loads(line.removeprefix(MARK))
