"""The scores of all steps as columns of numbers in a temporary file.

Belongs here: writing and reading the columns. What the numbers say is in score_tables.py. Their
number grows with the predictions, so memory holds one block of steps; the file has no name.
"""

import zlib
from array import array
from collections.abc import Mapping, Sequence
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

NO_PLACE = -1  # beside 0 and 1 of steps whose point is outside and inside the target's box
DIMENSIONS = ("action_type", "application", "platform", "difficulty")
_NAMED = ("task", *DIMENSIONS)
_CODES = ("trajectory", *_NAMED)
_BLOCK_STEPS = 4096
_FAST = 1  # the level of the compression: most scores of the baselines are 0


class ScoreFile:
    """Scores and labels of steps, in the order of trajectories and steps.

    A block ends where a trajectory ends. It is a context manager, which deletes the file.

    Args:
        answerers: number of answers to every step.
        presets: number of rules.
    """

    def __init__(self, answerers: int, presets: int) -> None:
        self._answerers = answerers
        self._columns: list[array[Any]] = [
            *(array("i") for _ in _CODES),
            *(array("b") for _ in range(answerers)),
            *(array("d") for _ in range(answerers * presets)),
        ]
        self._names: dict[str, dict[str, int]] = {name: {} for name in _NAMED}
        self._ends = array("q", [0])  # of the columns in the file, block by block
        self._trajectories, self._last = 0, ""
        self._file = TemporaryFile()  # noqa: SIM115 - `__exit__` closes it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def append(
        self,
        labels: Mapping[str, str],
        grounded: Sequence[bool | None],
        scores: Sequence[Sequence[float | None]],
    ) -> None:
        """Add a step.

        Args:
            labels: task, trajectory, and the value of every dimension.
            grounded: of every answer; None: no place or no known target.
            scores: by rule, of every answer; None: not judged.
        """
        if labels["trajectory"] != self._last or not self._trajectories:
            if len(self._columns[0]) >= _BLOCK_STEPS:
                self._write_block()
            self._trajectories, self._last = self._trajectories + 1, labels["trajectory"]
        values: list[float] = [self._trajectories]
        for name in _NAMED:
            known = self._names[name]
            values.append(known.setdefault(labels[name], len(known)))
        values += [NO_PLACE if hit is None else hit for hit in grounded]
        for row in scores:
            values += [np.nan if score is None else score for score in row]
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)

    def names(self, label: str) -> Mapping[str, int]:
        """The values of `task` or of a dimension, with the numbers that stand for them."""
        return self._names[label]

    def blocks(self) -> range:
        """The numbers of the blocks, once all steps were added."""
        if self._columns[0]:
            self._write_block()
        return range((len(self._ends) - 1) // len(self._columns))

    def codes(self, block: int, label: str) -> NDArray[np.int32]:
        """What stands for the value of a label, step by step; of trajectories a running number."""
        return np.frombuffer(self._read(block, _CODES.index(label)), np.int32)

    def hits(self, block: int, answerer: int) -> NDArray[np.int8]:
        """1 in the target's box, 0 outside, `NO_PLACE`, step by step."""
        return np.frombuffer(self._read(block, len(_CODES) + answerer), np.int8)

    def scores(self, block: int, preset: int, answerer: int) -> NDArray[np.float64]:
        """The scores of an answerer under a rule, step by step; NaN: not judged."""
        first = len(_CODES) + self._answerers * (1 + preset)
        return np.frombuffer(self._read(block, first + answerer), np.float64)

    def _read(self, block: int, column: int) -> bytes:
        number = block * len(self._columns) + column
        start, end = self._ends[number], self._ends[number + 1]
        self._file.seek(start)
        return zlib.decompress(self._file.read(end - start))

    def _write_block(self) -> None:
        self._file.seek(self._ends[-1])
        for column in self._columns:
            self._ends.append(self._ends[-1] + self._file.write(zlib.compress(column, _FAST)))
            del column[:]
