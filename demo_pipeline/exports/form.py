"""Forms of training records: what a form declares, and the file of its rows of one trajectory.

The stage `records` makes the rows of a trajectory once and keeps them as lines of a file, before
their split is known. `assemble` decides which rows a dataset holds and in which split, and puts
them together.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, cast

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
from demo_pipeline.datasets.splits import ExportPlan, Split, plan_export
from demo_pipeline.desktopd.trajectory_reader import Trajectory
from demo_pipeline.exports.export_summary import FinishedRows
from demo_pipeline.files import json_files
from demo_pipeline.files.atomic_write import FileDigest, file_digest
from demo_pipeline.files.shown_text import replace_surrogates
from demo_pipeline.problems import Problem
from demo_pipeline.review.decisions import Corrected
from demo_pipeline.settings import DatasetSettings, OwnExportError, own_exports, package_of
from demo_pipeline.trajectories.provenance import ProvenanceRow
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory

SHARED_SPLITS = frozenset({Split.TRAIN, Split.VAL, Split.TEST})


@dataclass(frozen=True, slots=True)
class Row:
    """All that one record of a step, or of a whole trajectory, adds to a dataset.

    Attributes:
        id: unique in the dataset.
        prompt: the question about the screenshot; the same screenshot with the same prompt is
            never written to two splits.
        screenshot: a file of the trajectory, of a whole trajectory that of its first step.
        parts: part → row of a table, or else a line: text or JSON value.
        files: name in the dataset, or a text that `Form.pictures` makes a name of → file of the
            trajectory.
        counts: numbers that the dataset adds up over its rows.
        documents: name → text of a file of its own. Names here and in `files` may begin with
            `{split}/`.
        tokens: estimated tokens of a chat; 0: it is not a chat.
    """

    id: str
    prompt: str
    screenshot: Path
    parts: Mapping[str, Any]
    files: Mapping[str, Path]
    counts: Mapping[str, int] = field(default_factory=dict)
    documents: Mapping[str, str] = field(default_factory=dict)
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Excluded:
    """Stands for a row that is not written.

    Attributes:
        reason: one of the form's `exclusions`.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Source:
    """The inputs of the rows of a trajectory.

    Attributes:
        candidate: the facts of it that decide its split.
        trajectory: as people corrected it, with annotations.
        rows: its provenance, by step.
        settings: those that the form declares; reading another setting raises `AttributeError`.
    """

    candidate: Candidate
    trajectory: Trajectory
    rows: Mapping[int, ProvenanceRow]
    settings: DatasetSettings

    @property
    def id(self) -> str:
        """The trajectory's id, as rows write it."""
        return replace_surrogates(self.trajectory.id)

    @property
    def application(self) -> str:
        """The application of its task, as rows write it."""
        return replace_surrogates(self.trajectory.task.application)

    @property
    def instruction(self) -> str:
        """The instruction of its task, as rows write it."""
        return replace_surrogates(self.trajectory.task.instruction)

    def name(self, file: Path) -> str:
        """A file as rows name it: `trajectories/<id>/steps/000/screenshot.png`."""
        path = file.relative_to(self.candidate.source.path).as_posix()
        return f"trajectories/{self.candidate.source.id}/{path}"


class KeptRow(msgspec.Struct):
    """A row as a line of the records keeps it.

    Attributes:
        id, counts, documents, tokens: see `Row`.
        question: SHA-256 over the prompt and the screenshot's SHA-256.
        files: name → path below the trajectory's folder.
        parts: name → row, or the text of a line.
    """

    id: str
    question: str
    files: dict[str, str]
    parts: dict[str, Any]
    counts: dict[str, int]
    documents: dict[str, str] = {}  # a struct copies it
    tokens: int = 0


class RowsHead(msgspec.Struct):
    """The first line of a file of kept rows.

    Attributes:
        excluded: reason → number of rows that the trajectory does not give.
        counts: numbers of the trajectory as a whole, which the dataset adds up.
    """

    excluded: dict[str, int]
    counts: dict[str, int]


_LINES_IN_MEMORY = 2**24  # bytes
_KEPT = msgspec.json.Decoder(KeptRow)
_HEAD = msgspec.json.Decoder(RowsHead)


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a Parquet file.

    Attributes:
        schema: the columns.
        rows: number of rows that are held in memory and become a row group.
        characters: number of characters of text that end a row group earlier; None: no limit.
        annotated: the columns if some trajectory of the dataset has one of `notes`.
        notes: kinds of annotations, and names of other wordings of the instruction.
    """

    schema: pa.Schema
    rows: int = 512
    characters: int | None = None
    annotated: pa.Schema | None = None
    notes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class File:
    """The files of a part, one per split: `.jsonl` lines, `.json` an array, `.parquet` a table.

    Attributes:
        part: the part of a row that is written.
        path: with `{split}`; with `{id}` each row has a file, which is the text of the part.
        table: returns the columns of a Parquet file for the settings.
        checked: describes a value, for the check of the rows and for `validate`: a `RecordFormat`,
            or a function that yields the problems of the value.
        empty: the splits whose file is written even without a row.
        only: the splits that have the file.
        config: the configuration of the card that loads it; empty: the card does not load it.
        base: the folder that names in its values are relative to; with `{id}` its own.
    """

    part: str
    path: str | Callable[[DatasetSettings, Split], str]
    table: Callable[[DatasetSettings], Table] | None = None
    checked: Any = None
    empty: frozenset[Split] = SHARED_SPLITS
    only: frozenset[Split] = frozenset(Split)
    config: str = ""
    base: str = ""

    def at(self, split: Split, settings: DatasetSettings) -> str:
        """Its path in a split."""
        path = self.path if isinstance(self.path, str) else self.path(settings, split)
        return path.replace("{split}", split.value)


Pictures = Callable[[Candidate, Split, KeptRow, DatasetSettings], Mapping[str, str]]
PlaceRow = Callable[[Mapping[str, Any], Split, DatasetSettings, str], Mapping[str, Any]]
Validate = Callable[[Path], Sequence[Problem]]


def linked_pictures(
    candidate: Candidate, split: Split, row: KeptRow, _settings: DatasetSettings
) -> Mapping[str, str]:
    """The files of a row under their names; see `Form.pictures`."""
    folder = candidate.source.folder
    return {
        name.replace("{split}", split.value, 1): f"{folder}/{path}"
        for name, path in row.files.items()
    }


def _of_whole_trajectory(_row: KeptRow) -> tuple[int, str]:
    """Of a row without a step of its own; see `Form.kind_of`."""
    return -1, "trajectory"


def _unchanged(
    row: Mapping[str, Any], _split: Split, _settings: DatasetSettings, _folder: str
) -> Mapping[str, Any]:
    """A row that is the same in every split; see `Form.place`."""
    return row


def _nothing(_finished: FinishedRows) -> Mapping[str, Any]:
    """No details, no side files."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Form:
    """All that the package knows of a form: `FORM` of its module.

    The defaults suit most forms. A form that needs more than the fields overrides the methods, in
    a subclass in its own module.

    Attributes:
        name: in `datasets.exports`, and of its module.
        asset: name of the stage.
        folder: of the dataset in the store.
        description: what it is, for people.
        code_version: increased whenever the code writes other bytes for the same inputs.
        settings: names of those in `datasets` that its rows depend on.
        exclusions: why a row may be left out; each reason is counted from 0.
        rows: yields the rows of a trajectory, and an `Excluded` for each that is left out. When a
            hidden action follows the last step, the final screenshot is not its doing.
        files: the files that its rows are written to.
        check: name of the check that compares the dataset with the rows.
        unit: what is counted: `samples`, `records`, or `steps` of whole trajectories.
        kinds: tags of the asset.
        kind_of: step (-1: of the whole) and kind of what is done, for the numbers of the card.
        place: a row of a table as a split has it; gets the folder of its trajectory.
        pictures: where a row's pictures are written, and the files that they are made of.
        whole: it is of whole trajectories, not of steps.
        details: further keys of the summary.
        side_files: the files beside the rows: name → JSON value, of a `.txt` its text.
        folders: exist even if no file is written into them.
        marks: names in its folder by which `validate` recognises it.
        decisive: one of `marks` is enough.
        line_key: a key that each of its lines has, and no line of another form.
        validate: the problems of a dataset in this format, whoever wrote it; None: `validate` asks
            what `files` say.
        validate_file: the same of one file.
        hub: each `HubTable` in the layout for the Hugging Face Hub.
        views: each `View` over its tables, for `demo-pipeline stats`.
        checks: further checks of the dataset.
        subfolder, replaces: see `TrainingExport`.
    """

    name: str
    asset: str
    folder: str
    description: str
    code_version: str
    settings: tuple[str, ...]
    exclusions: Sequence[str]
    rows: Callable[[Source], Iterator[Row | Excluded]]
    files: tuple[File, ...]
    check: str
    unit: str = "samples"
    kinds: frozenset[str] = frozenset({"json"})
    kind_of: Callable[[KeptRow], tuple[int, str]] = _of_whole_trajectory
    place: PlaceRow = _unchanged
    pictures: Pictures = linked_pictures
    whole: bool = False
    details: Callable[[FinishedRows], Mapping[str, Any]] = _nothing
    side_files: Callable[[FinishedRows], Mapping[str, Any]] = _nothing
    folders: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    decisive: bool = True
    line_key: str = ""
    validate: Validate | None = None
    validate_file: Validate | None = None
    hub: tuple[Any, ...] = ()
    views: tuple[Any, ...] = ()
    checks: tuple[Any, ...] = ()
    subfolder: Callable[[Any], str] | None = None
    replaces: Callable[..., Sequence[str]] | None = None

    @property
    def file(self) -> str:
        """The name of the file that keeps the rows of a trajectory."""
        return f"{self.name}.jsonl"

    def own(self, settings: DatasetSettings) -> DatasetSettings:
        """The settings that rows are made with: all but the declared ones have their default."""
        names = (*self.settings, "exclude_steps")
        return DatasetSettings.model_construct(**{n: getattr(settings, n) for n in names})

    def fingerprint(self, settings: DatasetSettings) -> str:
        """A text that changes when the rows of an unchanged trajectory may change."""
        return f"{self.code_version} {self.own(settings).fingerprint()}"

    def plan(
        self, trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings
    ) -> ExportPlan:
        """Which trajectories take part, and in which split."""
        return plan_export(trajectories, settings, whole_trajectories=self.whole)

    def skips(self, screenshot: Path, bad_steps: AbstractSet[Path]) -> bool:
        """Whether a row is left out because its step was marked as bad.

        `bad_steps`: the folders of those steps.
        """
        return screenshot.parent in bad_steps

    def count_trajectory(self, _made_of: Source) -> Mapping[str, int]:
        """Counts of a trajectory as a whole, which the dataset adds up."""
        return {}

    def prepare_pictures(
        self, candidate: Candidate, rows: Iterable[KeptRow], settings: DatasetSettings, out: Path
    ) -> None:
        """Write the pictures that are not links beside the kept rows, in `out`."""

    def make_picture(
        self, _source: str, _target: str, _row: KeptRow, _settings: DatasetSettings
    ) -> bool | None:
        """Write a picture that is not a link to its source.

        Returns:
            Whether it could be written; None: it is a link, and nothing was written.
        """
        return None

    def parts_of(
        self, _candidate: Candidate, row: KeptRow, _settings: DatasetSettings
    ) -> Mapping[str, Any]:
        """The parts of a row that the dataset takes."""
        return row.parts

    def derived_files(self, _out: Path) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield name and content, in pieces, of the files that are made of other written files."""
        return iter(())


def of_row(part: str, kind: str) -> Callable[[KeptRow], tuple[int, str]]:
    """A function that finds step and kind in the columns of a part; see `Form.kind_of`."""

    def find(row: KeptRow) -> tuple[int, str]:
        return row.parts[part].get("step_index", -1), row.parts[part][kind]

    return find


class _DeclaredSettings:
    """The settings that a form declares. Reading another setting raises `AttributeError`."""

    def __init__(self, form: Form, own: DatasetSettings) -> None:
        self._form = form
        self._own = own

    def __getattr__(self, name: str) -> Any:
        if name in DatasetSettings.model_fields and name not in self._form.settings:
            raise AttributeError(f"{self._form.name} reads datasets.{name}; name it in `settings`")
        return getattr(self._own, name)


def form_of(name: str) -> Form:
    """The form of a name, from its module, which is loaded when it is first needed.

    The module of a built-in form is `exports/<name>.py`, or `dataset.py` in the folder of that
    name; another installed package names its module in its entry point.

    Raises:
        OwnExportError: the form of another package cannot be loaded.
    """
    if name in own_exports():
        return _own_form(name)
    module = import_module(f"{__package__}.{name}")
    if not hasattr(module, "FORM"):
        module = import_module(f"{module.__name__}.dataset")
    form: Form = module.FORM
    return form


def _own_form(name: str) -> Form:
    """The form that another installed package brings."""
    export = own_exports()[name]
    place = f"the export {name} of the package {package_of(export)}"
    try:
        form = export.load()
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise OwnExportError(
            f"{place} cannot be loaded from {export.value}: {cause}; correct or uninstall it"
        ) from error
    if not isinstance(form, Form):
        raise OwnExportError(f"{place}: {export.value} is not a Form; correct the entry point")
    if form.name != name:
        raise OwnExportError(f"{place}: its Form has the name {form.name}; write the same name")
    if form.file == TRAJECTORY_FILE:
        raise OwnExportError(f"{place}: {TRAJECTORY_FILE} is a file of every trajectory; rename it")
    return form


def json_text(value: Any) -> str:
    """JSON on one line, of any depth: a tree inside a row can be deep."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return json_files.encode(value, indent=None)


def write_form_rows(
    source: DatasetTrajectory, forms: Sequence[Form], out: Path, settings: DatasetSettings
) -> Mapping[str, int]:
    """Write the facts of a trajectory that datasets need, and its rows in some forms.

    The rows are those of the trajectory as people corrected it.

    Returns:
        Form → number of rows.

    Raises:
        DemonstrationError: the trajectory cannot be read.
    """
    recorded, rows = read_head(source)
    (out / TRAJECTORY_FILE).write_bytes(b"".join(trajectory_lines(recorded, rows)))
    head = head_of(source)
    loaded = load_corrected(source, rows)
    counts: dict[str, int] = {}
    for form in forms:
        own = form.own(settings)
        with (out / form.file).open("wb") as file:
            sizes = list(map(file.write, row_lines(form, source, head, loaded, own)))
        rows_of_form = written_rows(out / form.file)
        form.prepare_pictures(candidate_of(source, head, own), rows_of_form, own, out)
        counts[form.name] = len(sizes) - 1  # without the head
    return counts


def written_rows(path: Path) -> Iterator[KeptRow]:
    """The rows of a file of kept rows; one row at a time is in memory."""
    with path.open("rb") as file:
        next(file)
        yield from map(_KEPT.decode, file)


def row_lines(
    form: Form,
    source: DatasetTrajectory,
    head: Head,
    loaded: Corrected,
    own: DatasetSettings,
) -> Iterator[bytes]:
    """Yield the lines that keep the rows of a trajectory: a `RowsHead`, then each `KeptRow`.

    `own`: see `Form.own`.
    """
    tables = {file.part for file in form.files if file.table}
    trajectory = loaded.trajectory
    candidate = candidate_of(source, head, own)
    bad = {step.folder for step in trajectory.steps if step.index in candidate.bad_steps}
    declared = cast("DatasetSettings", _DeclaredSettings(form, own))
    made_of = Source(candidate, trajectory, loaded.rows, declared)
    excluded = Counter[str]()
    with SpooledTemporaryFile(_LINES_IN_MEMORY) as lines:  # each step repeats those before it
        for row in form.rows(made_of):
            if isinstance(row, Excluded):
                excluded[row.reason] += 1
            elif form.skips(row.screenshot, bad):
                excluded[BAD_STEP] += 1
            else:
                lines.write(_line(row, candidate, tables))
        yield _encoded({"excluded": excluded, "counts": dict(form.count_trajectory(made_of))})
        lines.seek(0)
        yield from lines


def _line(row: Row, candidate: Candidate, tables: set[str]) -> bytes:
    top = len(candidate.source.folder) + 1
    digests = candidate.source.read
    screenshot = str(row.screenshot)
    if screenshot not in digests:  # every form asks for the same screenshots
        digests[screenshot] = file_digest(row.screenshot)
    parts: dict[str, Any] = {}
    for name, value in row.parts.items():
        is_ready = name in tables or isinstance(value, str)
        parts[name] = value if is_ready else json_text(value)
    line: dict[str, Any] = {
        "id": row.id,
        "question": question(row.prompt, digests[screenshot]),
        "files": {name: str(path)[top:] for name, path in row.files.items()},
        "counts": row.counts,
        "parts": parts,
    }
    if row.documents:
        line["documents"] = row.documents
    if row.tokens:
        line["tokens"] = row.tokens
    return _encoded(line)


def question(prompt: str, screenshot: FileDigest) -> str:
    """SHA-256, in hex, of a prompt and the SHA-256 of the screenshot that it is about."""
    digest = hashlib.sha256(prompt.encode(errors="replace"))
    digest.update(bytes.fromhex(screenshot.sha256))
    return digest.hexdigest()


def _encoded(value: Mapping[str, Any]) -> bytes:
    # Lone surrogates, which no trainer's JSON reader accepts, become "?".
    return f"{json.dumps(value, ensure_ascii=False)}\n".encode("utf-8", "replace")


def kept_rows(
    form: Form, source: DatasetTrajectory, settings: DatasetSettings
) -> tuple[RowsHead, Iterator[KeptRow]]:
    """The rows of a trajectory, from the file that keeps them if it has one.

    Raises:
        DemonstrationError: the trajectory cannot be read.
        ChangedOutput: the file is not the one that was committed.
    """
    lines = kept_lines(source, form.file)
    if lines is None:
        head = head_of(source)
        own = form.own(settings)
        lines = list(row_lines(form, source, head, load_corrected(source), own))
    return _HEAD.decode(lines[0]), map(_KEPT.decode, lines[1:])
