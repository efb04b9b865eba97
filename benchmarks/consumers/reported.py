"""What a consumer's script tells the runner: a line of JSON for every row of the table.

Each script is run as `python SCRIPT EXPORT MODEL` by the Python of its library, in a folder that is
not the dataset's. EXPORT is a copy of the datasets, MODEL a tiny Qwen-VL.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

MARK = "ROW "
MOST = 60  # samples that are all looked at
PATCHES = [78, 138]  # 14 pixels each, of a screenshot that was not made smaller


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


def answers(path: Path) -> list[str]:
    """What a model should say to each chat of `messages` or CUDAG."""
    turns = [line.get("messages") or line["conversations"] for line in lines_of(path)]
    return [last.get("content") or last["value"] for *_, last in turns]


def chosen(samples: Sequence[Any]) -> list[int]:
    """Which of many samples are looked at: each tenth, and the last ten, which are the longest."""
    count = len(samples)
    every = range(count) if count <= MOST else {*range(0, count, 10), *range(count - 10, count)}
    return sorted(every)


def learned(
    batches: Iterable[Mapping[str, Any]], said: Iterable[str], tokenizer: Any, model: Any
) -> tuple[int, int]:
    """The samples of one whole picture whose labels hold their answer, and the labels of all.

    Raises:
        AssertionError: the model's loss on the first batch is no number.
    """
    whole = labels = 0
    for batch, answer in zip(batches, said, strict=False):
        kept = batch["labels"][batch["labels"] != -100]
        text = tokenizer.decode(kept)
        if not labels:
            print("first labels:", repr(text))
            assert model(**batch).loss.isfinite()
        whole += answer in text and batch["image_grid_thw"].tolist() == [[1, *PATCHES]]
        labels += kept.numel()
    return whole, labels


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
