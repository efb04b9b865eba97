"""Records of one trajectory in a form: made once, kept as lines, put together by datasets.

Belongs here: what a form says of its records, the lines that keep them, and reading these. Which
records a dataset holds, and in which split, is decided in export_loop.py.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from demo_pipeline.datasets.selection import (
    BAD_STEP,
    TRAJECTORY_FILE,
    Candidate,
    Head,
    candidate_of,
    head_of,
    kept_lines,
    load_corrected,
    read_head,
    trajectory_lines,
)
from demo_pipeline.datasets.splits import Split
from demo_pipeline.desktopd.trajectory_reader import Trajectory
from demo_pipeline.files import json_files
from demo_pipeline.files.atomic_write import file_digest
from demo_pipeline.files.shown_text import replace_surrogates
from demo_pipeline.problems import Problem
from demo_pipeline.review.decisions import Corrected
from demo_pipeline.settings import DatasetSettings, ExportName
from demo_pipeline.trajectories.provenance import ProvenanceRow
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a form, made of a step or of a whole trajectory, before its split is known.

    Attributes:
        id: no two records of a dataset have the same.
        prompt: what is asked about the screenshot; the same screenshot with the same prompt is
            never written to two splits.
        screenshot: a file of the trajectory, of a whole trajectory that of its first step.
        parts: name of a part of the form → a row of its table, or else a line: text or JSON value.
        files: name in the form → file of the trajectory.
        counts: what the dataset counts over its records.
    """

    id: str
    prompt: str
    screenshot: Path
    parts: Mapping[str, Any]
    files: Mapping[str, Path]
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Excluded:
    """Stands for a record that is not written.

    Attributes:
        reason: one of the form's `exclusions`.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class RecordSource:
    """What the records of a trajectory are made of.

    Attributes:
        candidate: what datasets know of it.
        trajectory: as people corrected it, with notes.
        rows: its provenance, by step.
        settings: those that the form reads.
    """

    candidate: Candidate
    trajectory: Trajectory
    rows: Mapping[int, ProvenanceRow]
    settings: DatasetSettings

    @property
    def id(self) -> str:
        """The trajectory's id, as records have it."""
        return replace_surrogates(self.trajectory.id)

    @property
    def application(self) -> str:
        """The application of its task, as records have it."""
        return replace_surrogates(self.trajectory.task.application)

    @property
    def instruction(self) -> str:
        """The instruction of its task, as records have it."""
        return replace_surrogates(self.trajectory.task.instruction)

    def name(self, file: Path) -> str:
        """A file as records name it: `trajectories/<id>/steps/000/screenshot.png`."""
        path = file.relative_to(self.candidate.source.path).as_posix()
        return f"trajectories/{self.candidate.source.id}/{path}"


class KeptRecord(msgspec.Struct):
    """A record as its line keeps it.

    Attributes:
        id, counts: see `Record`.
        question: SHA-256 over the prompt and the screenshot's SHA-256.
        files: name in the form → path below the trajectory's folder.
        parts: name → row, or the text of a line.
    """

    id: str
    question: str
    files: dict[str, str]
    parts: dict[str, Any]
    counts: dict[str, int]


class _KeptCounts(msgspec.Struct):
    """The first line: records that a trajectory does not give, by reason, and what it counts."""

    excluded: dict[str, int]
    counts: dict[str, int]


_RECORD, _COUNTS = msgspec.json.Decoder(KeptRecord), msgspec.json.Decoder(_KeptCounts)


@dataclass(frozen=True, slots=True)
class Table:
    """A part whose values are rows of Parquet files.

    Attributes:
        schema: the columns.
        rows: that are held in memory and become a row group.
        characters: of text that end a row group earlier; None: no limit.
        annotated: the columns where some trajectory of the dataset has one of `notes`.
        notes: kinds of annotations, and names of other wordings of the instruction.
    """

    schema: pa.Schema
    rows: int = 512
    characters: int | None = None
    annotated: pa.Schema | None = None
    notes: frozenset[str] = frozenset()


Files = Mapping[str, Sequence[str]]
"""Part → the files that its values are written to."""


def link_names(
    candidate: Candidate, _split: Split, record: KeptRecord, _settings: DatasetSettings
) -> Mapping[str, str]:
    """The files of a record under their names; see `Form.pictures`."""
    folder = candidate.source.folder
    return {name: f"{folder}/{path}" for name, path in record.files.items()}


@dataclass(frozen=True, kw_only=True)
class Form:
    """What a form says of its records and of the files that they are written to.

    Attributes:
        name: in `datasets.exports`.
        code_version: increased whenever the code writes other bytes for the same inputs.
        settings: names of those in `datasets` that its records depend on.
        unit: what is counted: `samples`, `records`, or `steps` of whole trajectories.
        exclusions: why a record may be left out; each reason is counted from 0.
        records: yields the records of a trajectory, and an `Excluded` for each that is left out.
            When a hidden action follows the last step, the final screenshot is not its doing.
        files: the files of a split, by part: rows in `.parquet`, lines in `.jsonl`, the members of
            an array in `.json`.
        written: whether a split's file of a part is written without a record, too.
        tables: the parts that are rows.
        row: a row as a split has it.
        documents: a record's files of its own.
        pictures: where a record's pictures are written below the export, and their files.
        make: writes a picture that is not a link; None: it is one. False: it cannot be written.
        prepare: writes pictures that are not screenshots beside the kept records.
        instruction_in_prompt: whether every prompt holds the instruction.
        of_trajectory: what a trajectory as a whole counts.
        whole_trajectories: it is of whole trajectories, not of steps.
        of_steps: a record is of the step that its screenshot belongs to; a bad one gives none.
        parts: of a record that a dataset takes; reviews may say more than the record.
        plan: another plan than that of most forms.
        finish: writes the other files; returns details of the summary.
        problems: what is wrong with records of a trajectory; gets them with their lines, the file
            that problems name, and the trajectory.
    """

    name: ExportName
    code_version: str
    settings: tuple[str, ...]
    unit: str
    exclusions: Sequence[str]
    records: Callable[[RecordSource], Iterator[Record | Excluded]]
    files: Callable[[Split, DatasetSettings], Files]
    written: Callable[[Split, str], bool] = lambda split, _part: split is not Split.HELD_OUT
    tables: Callable[[DatasetSettings], Mapping[str, Table]] = lambda _: {}
    row: Callable[[Mapping[str, Any], Split, DatasetSettings, str], Mapping[str, Any]] = (
        lambda row, _split, _settings, _folder: row
    )
    documents: Callable[[Split, KeptRecord], Mapping[str, str]] = lambda _split, _record: {}
    pictures: Callable[[Candidate, Split, KeptRecord, DatasetSettings], Mapping[str, str]] = (
        link_names
    )
    make: Callable[[str, str, KeptRecord, DatasetSettings], bool | None] = (
        lambda _source, _target, _record, _settings: None
    )
    prepare: Callable[[Candidate, Sequence[KeptRecord], DatasetSettings, Path], None] = (
        lambda _candidate, _records, _settings, _out: None
    )
    instruction_in_prompt: Callable[[DatasetSettings], bool] = lambda _: True
    of_trajectory: Callable[[RecordSource], Mapping[str, int]] = lambda _: {}
    whole_trajectories: bool = False
    of_steps: bool = True
    parts: Callable[[Candidate, KeptRecord, DatasetSettings], Mapping[str, Any]] = (
        lambda _candidate, record, _settings: record.parts
    )
    plan: Callable[..., Any] | None = None
    finish: Callable[..., Mapping[str, Any]] = lambda *_: {}
    problems: Callable[
        [Sequence[tuple[int | None, KeptRecord]], str, DatasetTrajectory], Sequence[Problem]
    ] = lambda *_: ()

    @property
    def file(self) -> str:
        """The name of the file that keeps the records of a trajectory."""
        return f"{self.name}.jsonl"

    def of_records(self, settings: DatasetSettings) -> DatasetSettings:
        """The settings that records are made with: all but its own have their default."""
        own = {name: getattr(settings, name) for name in (*self.settings, "exclude_steps")}
        return DatasetSettings.model_construct(**own)

    def fingerprint(self, settings: DatasetSettings) -> str:
        """What its records depend on besides the trajectory."""
        return f"{self.code_version} {self.of_records(settings).fingerprint()}"


def json_text(value: Any) -> str:
    """JSON on one line, of any depth: a tree inside a record can be deep."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return json_files.encode(value, indent=None)


def write_records(
    source: DatasetTrajectory, forms: Sequence[Form], out: Path, settings: DatasetSettings
) -> Mapping[str, int]:
    """Write what datasets need of a trajectory, and its records in some forms.

    The records are of the trajectory as people corrected it.

    Returns:
        Form → number of records.

    Raises:
        DemonstrationError: the trajectory cannot be read.
    """
    recorded, rows = read_head(source)
    (out / TRAJECTORY_FILE).write_bytes(b"".join(trajectory_lines(recorded, rows)))
    head, loaded = head_of(source), load_corrected(source, rows)
    counts: dict[str, int] = {}
    for form in forms:
        own = form.of_records(settings)
        lines = list(record_lines(form, source, head, loaded, own))
        (out / form.file).write_bytes(b"".join(lines))
        kept = [_RECORD.decode(line) for line in lines[1:]]
        form.prepare(candidate_of(source, head, own), kept, own, out)
        counts[form.name] = len(kept)
    return counts


def record_lines(
    form: Form,
    source: DatasetTrajectory,
    head: Head,
    loaded: Corrected,
    own: DatasetSettings,
) -> Iterator[bytes]:
    """Yield the lines that keep the records of a trajectory: `_KeptCounts`, then `KeptRecord`s.

    `own`: see `Form.of_records`.
    """
    tables, trajectory = form.tables(own), loaded.trajectory
    candidate = candidate_of(source, head, own)
    bad = {step.screenshot for step in trajectory.steps if step.index in candidate.bad_steps}
    made_of = RecordSource(candidate, trajectory, loaded.rows, own)
    lines, excluded = [], Counter[str]()
    for record in form.records(made_of):
        if isinstance(record, Excluded):
            excluded[record.reason] += 1
        elif form.of_steps and record.screenshot in bad:
            excluded[BAD_STEP] += 1
        else:
            lines.append(_line(record, candidate, tables))
    yield _encoded({"excluded": excluded, "counts": dict(form.of_trajectory(made_of))})
    yield from lines


def _line(record: Record, candidate: Candidate, tables: Mapping[str, Table]) -> bytes:
    top = len(candidate.source.folder) + 1
    return _encoded(
        {
            "id": record.id,
            "question": question(record.prompt, record.screenshot),
            "files": {name: str(path)[top:] for name, path in record.files.items()},
            "counts": record.counts,
            "parts": {
                name: value if name in tables or isinstance(value, str) else json_text(value)
                for name, value in record.parts.items()
            },
        }
    )


def question(prompt: str, screenshot: Path) -> str:
    """SHA-256, in hex, of a prompt and the SHA-256 of the screenshot that it is about."""
    digest = hashlib.sha256(prompt.encode(errors="replace"))
    digest.update(bytes.fromhex(file_digest(screenshot).sha256))
    return digest.hexdigest()


def _encoded(value: Mapping[str, Any]) -> bytes:
    # Lone surrogates, which no trainer's JSON reader accepts, become "?".
    return f"{json.dumps(value, ensure_ascii=False)}\n".encode("utf-8", "replace")


def kept_records(
    form: Form, source: DatasetTrajectory, settings: DatasetSettings
) -> tuple[_KeptCounts, Iterator[KeptRecord]]:
    """The records of a trajectory, from the file that keeps them if it has one.

    Raises:
        DemonstrationError: the trajectory cannot be read.
        ChangedOutput: the file is not the one that was committed.
    """
    lines = kept_lines(source, form.file)
    if lines is None:
        head, own = head_of(source), form.of_records(settings)
        lines = list(record_lines(form, source, head, load_corrected(source), own))
    return _COUNTS.decode(lines[0]), map(_RECORD.decode, lines[1:])
