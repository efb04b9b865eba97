"""What one trajectory, or a part of several, adds to the files of `SplitFiles`.

Belongs here: holding it in memory, and its form in a kept part.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from demo_pipeline.common.hardlinks import link_or_copy
from demo_pipeline.common.parquet import rows_table
from demo_pipeline.datasets.export_parts import Part, table_bytes, table_of


class Run(NamedTuple):
    """Successive records of one trajectory in one split.

    Attributes:
        trajectory: id.
        split: name.
        records: how many.
        size: bytes of their lines.
        links: path below the export's folder → path below the trajectory's.
    """

    trajectory: str
    split: str
    records: int
    size: int
    links: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Segment:
    """The runs, their lines one after the other, and their rows."""

    runs: tuple[Run, ...]
    lines: bytes
    rows: pa.Table

    @property
    def size(self) -> int:
        """Its bytes, about."""
        return len(self.lines) + int(self.rows.nbytes)


@dataclass(slots=True)
class RecordSpan:
    """Successive records of a segment.

    Attributes:
        start, end: of their lines, bytes.
        row: the first one's.
        records: how many.
    """

    start: int
    end: int
    row: int
    records: int


@dataclass(slots=True)
class HeldRecords:
    """The records of one trajectory, until they become a segment."""

    schema: pa.Schema
    splits: list[str] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    links: list[dict[str, Path]] = field(default_factory=list)

    def append(self, split: str, line: bytes, row: Mapping[str, Any]) -> None:
        """Add a record."""
        self.splits.append(split)
        self.lines.append(line)
        self.rows.append([row.get(name) for name in self.schema.names])
        self.links.append({})

    def segment(self, trajectory: str, folder: str) -> Segment:
        """The records as a segment.

        Args:
            trajectory: its id.
            folder: of the trajectory, which all linked files are in.
        """
        runs: list[Run] = []
        start, top = 0, len(folder) + 1
        for end in range(1, len(self.splits) + 1):
            if end == len(self.splits) or self.splits[end] != self.splits[start]:
                size = sum(map(len, self.lines[start:end]))
                links = {
                    name: str(source)[top:]
                    for files in self.links[start:end]
                    for name, source in files.items()
                }
                runs.append(Run(trajectory, self.splits[start], end - start, size, links))
                start = end
        columns = list(zip(*self.rows, strict=True))
        rows = rows_table(columns, self.schema) if columns else self.schema.empty_table()
        return Segment(tuple(runs), b"".join(self.lines), rows)


def pack_segments(segments: Sequence[Segment], schema: pa.Schema) -> Part:
    """Segments as one part."""
    rows = pa.concat_tables([schema.empty_table(), *(segment.rows for segment in segments)])
    header = {"runs": [list(run) for segment in segments for run in segment.runs]}
    lines = b"".join(segment.lines for segment in segments)
    return Part(header, {"lines": lines, "rows": table_bytes(rows)})


def unpack_segment(part: Part) -> Segment:
    """The segment that a part holds."""
    runs = tuple(Run(*values) for values in part.header["runs"])
    return Segment(runs, part.blobs["lines"], table_of(part.blobs["rows"]))


def linked_folders(segment: Segment) -> list[str]:
    """Folders of the export that hold nothing but files of the segment's runs."""
    folders: dict[str, bool] = {}
    for run in segment.runs:
        folder = f"trajectories/{run.trajectory}"
        if run.links:
            inside = all(name.startswith(f"{folder}/") for name in run.links)
            folders[folder] = inside and folders.get(folder, True)
    return [folder for folder, inside in folders.items() if inside]


def make_links(out: str, folder: str, links: Mapping[str, str], made: str = "") -> str:
    """Make the files of a run, each once, as hard links; copies where that is refused.

    Args:
        out: folder of the export.
        folder: of the trajectory.
        links: path below `out` → path below `folder`.
        made: a folder below `out` that this has made before.

    Returns:
        The last folder below `out` that it made.
    """
    for name, source in links.items():
        above = name.rpartition("/")[0]
        if above != made:
            _make_folders(out, above.split("/"), made.split("/"))
            made = above
        place, target = f"{folder}/{source}", f"{out}/{name}"
        try:
            os.link(place, target)
        except FileExistsError:
            continue
        except OSError:
            link_or_copy(Path(place), Path(target))
    return made


def _make_folders(top: str, names: list[str], made: list[str]) -> None:
    """Make a folder below `top` and those above it; `made` is another one that exists."""
    path, exists = top, True
    for place, name in enumerate(names):
        path, exists = f"{path}/{name}", exists and made[place : place + 1] == [name]
        if not exists:
            try:
                os.mkdir(path)  # noqa: PTH102 - a hundred thousand times
            except FileExistsError:
                continue
