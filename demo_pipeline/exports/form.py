"""Declares the forms of training exports, and writes the rows of a trajectory in each form.

A form is the record format of an export. The stage `records` writes the rows of each trajectory
before their split is known. assemble.py selects the rows of a dataset, and writes them to the files
of their split.
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
from demo_pipeline.stage import TrainingExport
from demo_pipeline.trajectories.provenance import ProvenanceRow
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory

SHARED_SPLITS = frozenset({Split.TRAIN, Split.VAL, Split.TEST})


@dataclass(frozen=True, slots=True)
class Row:
    """A record of a dataset with its files, made from a step or from a whole trajectory.

    Attributes:
        id: unique in the dataset.
        prompt: the question to the model. The same prompt about the same screenshot is never
            written to two splits.
        screenshot: the screenshot that the prompt is about; for a whole trajectory, the screenshot
            of its first step.
        parts: the content of each part by name: a table row (a dictionary from columns to values),
            a text, or a JSON value. `File.part` says which file each part is written to.
        files: files of the trajectory by their name in the dataset. `Form.pictures` may replace
            the names.
        counts: numbers that are summed over all rows of the dataset.
        documents: texts of separate files by their name in the dataset. Names here and in `files`
            may begin with `{split}/`.
        tokens: estimated number of tokens of a chat; 0 if the row is not a chat.
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
    """A placeholder for a row that is left out.

    Attributes:
        reason: an item of `Form.exclusions`, under which the row is counted.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Source:
    """A trajectory from which a form makes rows.

    Attributes:
        candidate: facts about the trajectory, such as its hidden actions and bad steps.
        trajectory: steps, task and result, with people's corrections and annotations.
        rows: provenance of each step by its index.
        settings: only the settings that `Form.settings` names; others raise `AttributeError`.
    """

    candidate: Candidate
    trajectory: Trajectory
    rows: Mapping[int, ProvenanceRow]
    settings: DatasetSettings

    @property
    def id(self) -> str:
        """The trajectory's id, without lone surrogates."""
        return replace_surrogates(self.trajectory.id)

    @property
    def application(self) -> str:
        """The application of the task, without lone surrogates."""
        return replace_surrogates(self.trajectory.task.application)

    @property
    def instruction(self) -> str:
        """The instruction of the task, without lone surrogates."""
        return replace_surrogates(self.trajectory.task.instruction)

    def name(self, file: Path) -> str:
        """Returns a file's name in datasets, such as `trajectories/<id>/final_screenshot.png`."""
        path = file.relative_to(self.candidate.source.path).as_posix()
        return f"trajectories/{self.candidate.source.id}/{path}"


class KeptRow(msgspec.Struct):
    """A row in the output of the stage `records`, stored as a JSON line.

    Attributes:
        id, counts, documents, tokens: see `Row`.
        question: the hash of prompt and screenshot; see the function `question`.
        files: maps a file's name in the dataset to its path relative to the trajectory's folder.
        parts: maps the name of each part to a table row or to the text of a line.
    """

    id: str
    question: str
    files: dict[str, str]
    parts: dict[str, Any]
    counts: dict[str, int]
    documents: dict[str, str] = {}  # msgspec copies the default for each row
    tokens: int = 0


class RowsHead(msgspec.Struct):
    """The first line of a file with the rows of a trajectory.

    Attributes:
        excluded: number of left-out rows by reason.
        counts: numbers about the whole trajectory that are summed over the dataset.
    """

    excluded: dict[str, int]
    counts: dict[str, int]


# Maximum size of a trajectory's rows in memory, bytes. If all rows together are larger, they are
# buffered in a file.
_LINES_IN_MEMORY = 2**24
_KEPT = msgspec.json.Decoder(KeptRow)
_HEAD = msgspec.json.Decoder(RowsHead)


@dataclass(frozen=True, slots=True)
class Table:
    """The schema of a Parquet file, and the limits of its row groups.

    Attributes:
        schema: the columns.
        rows: maximum number of rows of a row group; a whole row group is collected in memory.
        characters: number of characters of text after which a row group ends; None means no limit.
        annotated: replaces `schema` if any trajectory of the dataset has an annotation of a kind in
            `notes`; None if annotations add no columns.
        notes: the kinds of annotations that need additional columns, such as `thought`.
    """

    schema: pa.Schema
    rows: int = 512
    characters: int | None = None
    annotated: pa.Schema | None = None
    notes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class File:
    """The files to which one part of each row is written, usually one file per split.

    The suffix decides the format: `.jsonl` has a line per row, `.json` is an array, `.parquet` is a
    table.

    Attributes:
        part: a key of `Row.parts`.
        path: path in the dataset, or a function that returns the path. `{split}` is replaced by the
            name of the split. If the path contains `{id}`, each row has a file of its own with the
            part as text.
        table: returns the columns; only needed for `.parquet`.
        checked: a `RecordFormat`, or a function that returns the problems of a value (see
            `record_checks.Checked`). If it is None, values are not checked.
        empty: the splits whose file is written even if it has no row.
        only: the splits that may have the file.
        config: name of the configuration under which `load_dataset` loads the file. If it is empty,
            the card does not mention the file.
        base: folder in the dataset to which file names in the values are relative. If `path`
            contains `{id}`, they are relative to the folder of the written file instead.
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
        """Returns the path of the file for a split."""
        path = self.path if isinstance(self.path, str) else self.path(settings, split)
        return path.replace("{split}", split.value)


Pictures = Callable[[Candidate, Split, KeptRow, DatasetSettings], Mapping[str, str]]
PlaceRow = Callable[[Mapping[str, Any], Split, DatasetSettings, str], Mapping[str, Any]]
Validate = Callable[[Path], Sequence[Problem]]


def linked_pictures(
    candidate: Candidate, split: Split, row: KeptRow, _settings: DatasetSettings
) -> Mapping[str, str]:
    """Returns the images of a row as listed in `Row.files`; the default of `Form.pictures`."""
    folder = candidate.source.folder
    return {
        name.replace("{split}", split.value, 1): f"{folder}/{path}"
        for name, path in row.files.items()
    }


def _of_whole_trajectory(_row: KeptRow) -> tuple[int, str]:
    """Returns step and kind of a row of a whole trajectory; the default of `Form.kind_of`."""
    return -1, "trajectory"


def _unchanged(
    row: Mapping[str, Any], _split: Split, _settings: DatasetSettings, _folder: str
) -> Mapping[str, Any]:
    """Returns the row unchanged; the default of `Form.place`."""
    return row


def _nothing(_finished: FinishedRows) -> Mapping[str, Any]:
    """Returns an empty mapping; the default of `Form.details` and `Form.side_files`."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Form:
    """The declaration of a training export; each module of an export defines one as `FORM`.

    For forms that need more than these values, a subclass overrides the methods below.

    Attributes:
        name: name of the export in `datasets.exports`, and of the module.
        asset: name of the Dagster asset.
        folder: folder of the dataset in the store.
        description: description of the dataset for people.
        code_version: to be increased whenever the code writes different bytes for the same inputs.
        settings: names of the settings in `datasets` on which the rows depend.
        exclusions: the reasons for which a row may be left out. The summary lists each reason with
            its count, even if it is 0.
        rows: yields the rows of a trajectory, and an `Excluded` for each row that is left out. If a
            hidden action follows the last step, the function must not use the final screenshot as
            the effect of that step.
        files: the files to which the parts of rows are written.
        check: name of the check that compares the dataset with the rows of its trajectories.
        unit: what the summary counts: `samples`, `records`, or `steps` of whole trajectories.
        kinds: tags of the asset in Dagster.
        kind_of: returns the step index of a row (-1 for a whole trajectory) and its kind of action,
            for the statistics in the card.
        place: returns a table row as it is written to a split; its last argument is the folder of
            the trajectory.
        pictures: returns the images of a row: a mapping from names in the dataset to source files.
        whole: whether rows are made from whole trajectories instead of steps.
        details: returns further keys of the summary.
        side_files: returns the files about the whole dataset by name: the JSON value of each file,
            or the text of a `.txt` file.
        folders: folders that exist even if no file is written to them.
        marks: names of files and folders by which `validate` recognises a dataset in this form.
        decisive: whether a single one of `marks` is enough to recognise such a dataset.
        line_key: a key that every JSON line of this form has, but no line of any other form.
        validate: returns the problems of a dataset, even if another program wrote it. If it is
            None, `record_checks.validate_form` validates datasets by `files`.
        validate_file: returns the problems of a single file. If it is None,
            `record_checks.validate_form_file` validates single files.
        hub: a `HubTable` for each configuration in the layout for the Hugging Face Hub.
        views: a `View` for each SQL view over the tables of the dataset.
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

    @property
    def file(self) -> str:
        """Name of the file with a trajectory's rows in the output of the stage `records`."""
        return f"{self.name}.jsonl"

    def own(self, settings: DatasetSettings) -> DatasetSettings:
        """Returns the settings on which rows depend; all other settings have their defaults."""
        names = (*self.settings, "exclude_steps")
        return DatasetSettings.model_construct(**{n: getattr(settings, n) for n in names})

    def fingerprint(self, settings: DatasetSettings) -> str:
        """Returns a text that changes with the code version or a setting on which rows depend."""
        return f"{self.code_version} {self.own(settings).fingerprint()}"

    def plan(
        self, trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings
    ) -> ExportPlan:
        """Returns the included trajectories and their splits."""
        return plan_export(trajectories, settings, whole_trajectories=self.whole)

    def skips(self, screenshot: Path, bad_steps: AbstractSet[Path]) -> bool:
        """Returns whether a row is left out because its step is bad.

        Args:
            bad_steps: the folders of the bad steps; see `Candidate.bad_steps`.
        """
        return screenshot.parent in bad_steps

    def count_trajectory(self, _source: Source) -> Mapping[str, int]:
        """Returns numbers about a whole trajectory that are summed over the dataset."""
        return {}

    def prepare_pictures(
        self, candidate: Candidate, rows: Iterable[KeptRow], settings: DatasetSettings, out: Path
    ) -> None:
        """Writes images that are not links to files of the trajectory; by default, does nothing.

        Args:
            settings: the result of `own`.
            out: folder of the records.
        """

    def make_picture(
        self, _source: str, _target: str, _row: KeptRow, _settings: DatasetSettings
    ) -> bool | None:
        """Writes an image of the dataset that is not a link to its source file.

        Returns:
            Whether the image could be written; None if the caller has to make a link instead.
        """
        return None

    def parts_of(
        self, _candidate: Candidate, row: KeptRow, _settings: DatasetSettings
    ) -> Mapping[str, Any]:
        """Returns, by name, the parts of a row that are written to the dataset."""
        return row.parts

    def derived_files(self, _out: Path) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yields name and content (in pieces) of files made from other files in `_out`."""
        return iter(())

    def adapted(self, export: TrainingExport[Any]) -> TrainingExport[Any]:
        """Adapts the export to this form; by default, returns it unchanged."""
        return export


def of_row(part: str, kind: str) -> Callable[[KeptRow], tuple[int, str]]:
    """Returns a function for `Form.kind_of` that reads step and kind of action from a table row.

    Args:
        part: the key of the table row in `KeptRow.parts`. If the table row has no column
            `step_index`, the step is -1.
        kind: name of the column with the kind of action.
    """

    def step_and_kind(row: KeptRow) -> tuple[int, str]:
        return row.parts[part].get("step_index", -1), row.parts[part][kind]

    return step_and_kind


class _DeclaredSettings:
    """Provides only the settings that a form declares; others raise `AttributeError`."""

    def __init__(self, form: Form, own: DatasetSettings) -> None:
        self._form = form
        self._own = own

    def __getattr__(self, name: str) -> Any:
        if name in DatasetSettings.model_fields and name not in self._form.settings:
            raise AttributeError(
                f"the form {self._form.name} reads datasets.{name}; name it in `settings`"
            )
        return getattr(self._own, name)


def form_of(name: str) -> Form:
    """Returns the form with this name; its module is imported at the first call.

    Other installed packages name their forms in an entry point.

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
    """Loads a form from the entry point of another installed package."""
    export = own_exports()[name]
    place = f"the export {name} of the package {package_of(export)}"
    try:
        form = export.load()
    except Exception as error:  # the import of another package can raise any error
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
    """Returns a value as JSON on one line; unlike `json.dumps`, it accepts values of any depth."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return json_files.encode(value, indent=None)


def write_form_rows(
    source: DatasetTrajectory, forms: Sequence[Form], out: Path, settings: DatasetSettings
) -> Mapping[str, int]:
    """Writes the facts about a trajectory that datasets need, and its rows in all given forms.

    Args:
        source: the trajectory. Its corrections and annotations must already be in `out`.
        out: folder of the records.

    Returns:
        The number of rows in each form, by the form's name.

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
        line_count = 0
        with (out / form.file).open("wb") as file:
            for line in row_lines(form, source, head, loaded, own):
                file.write(line)
                line_count += 1
        rows_of_form = written_rows(out / form.file)
        form.prepare_pictures(candidate_of(source, head, own), rows_of_form, own, out)
        counts[form.name] = line_count - 1  # the first line is a `RowsHead`
    return counts


def written_rows(path: Path) -> Iterator[KeptRow]:
    """Yields the rows in a file that `write_form_rows` wrote. One row at a time is in memory."""
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
    """Yields the lines of a trajectory's file of rows: a `RowsHead`, then each `KeptRow`.

    Args:
        loaded: the trajectory with people's corrections.
        own: the result of `Form.own`.
    """
    tables = {file.part for file in form.files if file.table}
    trajectory = loaded.trajectory
    candidate = candidate_of(source, head, own)
    bad = {step.folder for step in trajectory.steps if step.index in candidate.bad_steps}
    declared = cast("DatasetSettings", _DeclaredSettings(form, own))
    form_source = Source(candidate, trajectory, loaded.rows, declared)
    excluded = Counter[str]()
    # The counts in the first line are known only after the last row. The rows may not fit into
    # memory, because the row of a step can repeat all earlier steps.
    with SpooledTemporaryFile(_LINES_IN_MEMORY) as lines:
        for row in form.rows(form_source):
            if isinstance(row, Excluded):
                excluded[row.reason] += 1
            elif form.skips(row.screenshot, bad):
                excluded[BAD_STEP] += 1
            else:
                lines.write(_line(row, candidate, tables))
        yield _encoded({"excluded": excluded, "counts": dict(form.count_trajectory(form_source))})
        lines.seek(0)
        yield from lines


def _line(row: Row, candidate: Candidate, tables: set[str]) -> bytes:
    """Returns a row as a JSON line in the format of `KeptRow`.

    Args:
        tables: names of the parts that are rows of tables.
    """
    prefix_length = len(candidate.source.folder) + 1
    digests = candidate.source.read  # a cache, because all forms use the same screenshots
    screenshot = str(row.screenshot)
    if screenshot not in digests:
        digests[screenshot] = file_digest(row.screenshot)
    parts: dict[str, Any] = {}
    for name, value in row.parts.items():
        is_ready = name in tables or isinstance(value, str)
        parts[name] = value if is_ready else json_text(value)
    line: dict[str, Any] = {
        "id": row.id,
        "question": question(row.prompt, digests[screenshot]),
        "files": {name: str(path)[prefix_length:] for name, path in row.files.items()},
        "counts": row.counts,
        "parts": parts,
    }
    if row.documents:
        line["documents"] = row.documents
    if row.tokens:
        line["tokens"] = row.tokens
    return _encoded(line)


def question(prompt: str, screenshot: FileDigest) -> str:
    """Returns the hexadecimal SHA-256 of a question to the model: its prompt and its screenshot."""
    digest = hashlib.sha256(prompt.encode(errors="replace"))
    digest.update(bytes.fromhex(screenshot.sha256))
    return digest.hexdigest()


def _encoded(value: Mapping[str, Any]) -> bytes:
    # Lone surrogates become "?", because JSON readers of trainers reject them.
    return f"{json.dumps(value, ensure_ascii=False)}\n".encode("utf-8", "replace")


def kept_rows(
    form: Form, source: DatasetTrajectory, settings: DatasetSettings
) -> tuple[RowsHead, Iterator[KeptRow]]:
    """Returns the head and the rows of a trajectory in a form.

    If the output of the stage `records` has no file for the form, the rows are made from the
    trajectory.

    Raises:
        DemonstrationError: the trajectory cannot be read.
        ChangedOutput: the file for the form was changed after the stage committed it.
    """
    lines = kept_lines(source, form.file)
    if lines is None:
        head = head_of(source)
        own = form.own(settings)
        lines = list(row_lines(form, source, head, load_corrected(source), own))
    return _HEAD.decode(lines[0]), map(_KEPT.decode, lines[1:])
