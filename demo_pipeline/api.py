"""The API for notebooks: tables of a store as DataFrames, and trajectories with their images.

`import demo_pipeline as dp` provides the names in `__all__`. The API only reads; the pipeline
writes stores.
"""

import difflib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pyarrow as pa

from demo_pipeline.actions.action_stages import ACTIONS_STAGE
from demo_pipeline.actions.action_tables import ACTIONS_SCHEMA
from demo_pipeline.datasets.index import INDEX_STEPS_SCHEMA, TRAJECTORIES_SCHEMA
from demo_pipeline.datasets.splits import Split
from demo_pipeline.desktopd.models import Result, StepAction, Task
from demo_pipeline.desktopd.trajectory_reader import StepFiles
from demo_pipeline.evaluation.scoring import SCORES_SCHEMA
from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.exports.hub_layout import PICTURE, HubTable, with_hub_features
from demo_pipeline.files.json_files import load_json
from demo_pipeline.files.parquet import column_descriptions, column_domains, read_table
from demo_pipeline.observation.frames.video_reader import Span
from demo_pipeline.privacy.redaction_stage import open_shown
from demo_pipeline.recording.input_log import EVENTS_SCHEMA
from demo_pipeline.recording.recording_stages import EVENTS_STAGE, RecordingInputs
from demo_pipeline.reports.shown_steps import (
    Shown,
    sheet_of,
    step_html,
    step_picture,
    trajectory_html,
    video_clip,
)
from demo_pipeline.review.decisions import judge
from demo_pipeline.review.review_data import ReviewData
from demo_pipeline.review.review_store import Reviews, subject_of
from demo_pipeline.review.signals import STEP_SIGNALS
from demo_pipeline.review.triage import (
    DEMONSTRATION_FILE,
    TRIAGE_SCHEMA,
    TRIAGE_STAGE,
    TRIAGE_STEPS_FILE,
    TRIAGE_STEPS_SCHEMA,
)
from demo_pipeline.runs.damage import storage_message
from demo_pipeline.runs.evaluations import Evaluation, score_rows
from demo_pipeline.runs.queries import answering
from demo_pipeline.runs.stages import training_exports
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.stage import Stage
from demo_pipeline.store.bucket import in_parallel
from demo_pipeline.store.errors import OutputError, StorageError
from demo_pipeline.store.names import is_bucket, is_safe_id, local_path
from demo_pipeline.store.store import Store, open_store
from demo_pipeline.store.uploads import open_uploads
from demo_pipeline.trajectories.contact_sheets import step_tile
from demo_pipeline.trajectories.provenance import PROVENANCE_SCHEMA
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory, load
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

FRAME_SCHEMAS: Mapping[str, pa.Schema] = {
    "trajectories": TRAJECTORIES_SCHEMA,
    "steps": INDEX_STEPS_SCHEMA,
    "actions": ACTIONS_SCHEMA,
    "events": EVENTS_SCHEMA,
    "scores": SCORES_SCHEMA,
    "triage": TRIAGE_SCHEMA,
    "triage_steps": TRIAGE_STEPS_SCHEMA,
}
# Pandas types for columns that may contain nulls. By default, pandas would convert integers to
# floats, and booleans and texts to objects.
_NULLABLE = {
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.string(): pd.StringDtype(),
}


def _data_frame(table: pa.Table) -> pd.DataFrame:
    """Converts a table to a DataFrame whose column types do not depend on the rows.

    Columns that may be null have pandas' nullable types (`Int32`, `Int64`, `boolean`, `string`).
    Missing floats are NaN. Cells with lists are arrays.
    """
    columns = dict[str, Any]()
    for column in table.schema:
        types_mapper = None
        if column.nullable:
            types_mapper = _NULLABLE.get
        columns[column.name] = table[column.name].to_pandas(types_mapper=types_mapper)
    return pd.DataFrame(columns)


RgbImage = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class LoadedStep:
    """A step of a trajectory.

    Attributes:
        index: 0-based index of the step.
        action: the content of action.json: `action_type`, `parameters` in pixels of the
            screenshot, `target_element`, `reasoning`. The action contains typed text.
        provenance: the row of the step in provenance.parquet, as a dictionary.
        files: the paths of the step's files.
    """

    index: int
    action: StepAction = field(repr=False)
    provenance: Mapping[str, Any] = field(repr=False)
    files: StepFiles = field(repr=False)

    @property
    def screenshot(self) -> RgbImage:
        """The screen before the action, as RGB of shape (1080, 1920, 3).

        Each access decodes the image.

        Raises:
            StorageError: the file no longer exists, or is damaged.
        """
        return _read_picture(self.files.screenshot)

    @property
    def tree(self) -> dict[str, Any]:
        """The content of ui_tree.json: `timestamp`, `screen` and `root`.

        Boxes are in pixels of the screenshot.

        Raises:
            JsonFileError: the file no longer exists, or is damaged.
        """
        tree: dict[str, Any] = load_json(self.files.ui_tree)
        return tree

    def picture(self, width: int = 1280) -> Shown:
        """Returns the screenshot, `width` pixels wide, with the action and its target drawn."""
        return step_picture(self.files, self.provenance, width)

    def _repr_html_(self) -> str:
        return step_html(self.files, self.provenance)


@dataclass(frozen=True)
class LoadedTrajectory:
    """A trajectory with its steps.

    All files come from the same version of the trajectory in the store. If the version is replaced,
    `demo-pipeline prune` keeps its files for 24 hours by default.

    Attributes:
        id: the demonstration's id.
        task: the content of task.json: `instruction`, `application`, `difficulty`, …
        steps: the steps in order.
        result: the content of result.json: `success`, `completion_time_ms`, `error_message`, …
        provenance: table with a row for each step. `columns("steps")` describes the columns.
    """

    id: str
    task: Task
    steps: tuple[LoadedStep, ...] = field(repr=False)
    result: Result
    provenance: pd.DataFrame = field(repr=False, compare=False)
    _final_screenshot: Path = field(repr=False)
    _find_video: Callable[[], Path | None] = field(repr=False, compare=False)

    @property
    def final_screenshot(self) -> RgbImage:
        """The screen after the last step, as RGB of shape (1080, 1920, 3).

        Each access decodes the image.
        """
        return _read_picture(self._final_screenshot)

    def clip(self, step_index: int, before_s: float = 1.0, after_s: float = 2.0) -> Shown:
        """Returns a clip of the video around a step.

        Args:
            step_index: index of the step.
            before_s: number of seconds of video before the screenshot of the step.
            after_s: number of seconds of video after the end of the action.

        Raises:
            StorageError: the trajectory has no such step, the video is neither in the store nor in
                the uploads, or the video does not contain the step.
        """
        row = _step_of(self, step_index).provenance
        video = self._find_video()
        if video is None or row["pts"] is None:
            raise StorageError(
                f"{self.id}: the video is neither in the store nor in the uploads of the settings "
                "(DEMO_PIPELINE_UPLOADS), or it does not contain this step"
            )
        end = row["pts"] + (row["lead_ms"] + row["end_ms"] - row["press_ms"]) / 1000
        return video_clip(video, Span(row["pts"] - before_s, end + after_s))

    def _repr_html_(self) -> str:
        outcome = "done" if self.result.success else "not done"
        about = f"{self.id} · {self.task.application} · {outcome} · {len(self.steps)} steps"
        steps = [step.files for step in self.steps]
        rows = [step.provenance for step in self.steps]
        return trajectory_html((about, self.task.instruction), steps, rows)


def _step_of(trajectory: LoadedTrajectory, index: int) -> LoadedStep:
    """Returns the step with this index. Raises `StorageError` if there is no such step."""
    for step in trajectory.steps:
        if step.index == index:
            return step
    last = len(trajectory.steps) - 1
    raise StorageError(f"{trajectory.id} has no step {index}; it has 0 to {last}")


def _read_picture(path: Path) -> RgbImage:
    picture = None
    if path.is_file() and (data := path.read_bytes()):
        picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
    if picture is None:
        raise StorageError(
            f"{path.parent.name}/{path.name} cannot be read; load the trajectory again"
        )
    rgb: RgbImage = np.asarray(picture, np.uint8)
    return rgb


def _with_pictures(rows: pa.Table, table: HubTable, export: Path) -> pa.Table:
    """Converts a split of an export to the columns that the dataset has on the Hugging Face Hub.

    Images and UI trees are replaced by the paths of their files in the store.
    """

    def with_full_path(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [with_full_path(name, item) for item in value]
        if not isinstance(value, str) or value.startswith("{"):
            return value
        path = str(export / value)
        if name in table.pictures:
            return {"bytes": None, "path": path}
        return path

    columns = []
    fields = []
    for column in rows.schema:
        name = column.name
        if name in table.without:
            continue
        kind = column.type
        values = rows[name]
        if name in table.pictures and pa.types.is_list(kind):
            kind = pa.list_(PICTURE)
        elif name in table.pictures:
            kind = PICTURE
        if name in table.pictures + table.trees:
            values = pa.array([with_full_path(name, value) for value in values.to_pylist()], kind)
        columns.append(values)
        fields.append(pa.field(name, kind))
    return pa.Table.from_arrays(columns, schema=with_hub_features(pa.schema(fields)))


@contextmanager
def _buildable() -> Iterator[None]:
    """Converts errors about a missing output to errors that name the command to build it."""
    try:
        yield
    except OutputError as error:
        raise StorageError(storage_message(error)) from None


__all__ = ["LoadedStep", "LoadedTrajectory", "NotebookStore", "load_store"]


class NotebookStore:
    """A store that `load_store` opened for reading.

    The tables contain typed text. Check them before you publish them.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"NotebookStore({self.url!r})"

    @property
    def url(self) -> str:
        """The folder or the `s3://` URL of the store."""
        return self._store.url

    def demonstrations(self) -> list[str]:
        """Returns the sorted ids of the demonstrations that have a trajectory."""
        return [name.rpartition("/")[2] for name in self._store.outputs(TRAJECTORIES_STAGE.folder)]

    def trajectories(self) -> pd.DataFrame:
        """Returns a row for each trajectory of the dataset; see `columns("trajectories")`.

        Raises:
            StorageError: the datasets have not been built.
        """
        return self._frame("trajectories", INDEX_STAGE.folder)

    def steps(self, *, triage: bool = False) -> pd.DataFrame:
        """Returns a row for each step of the dataset, without corrections; see `columns("steps")`.

        Args:
            triage: whether to add the columns `doubt` and `review`, and a column for each signal of
                doubt; see `columns("triage_steps")`. `review` is the decision of reviewers on the
                demonstration: `open`, `approved` or `rejected`.

        Raises:
            StorageError: the datasets have not been built.
        """
        steps = self._frame("steps", INDEX_STAGE.folder)
        if not triage:
            return steps
        keys = ["trajectory_id", "step_index"]
        signals = [signal.name for signal in STEP_SIGNALS if signal.name not in steps]
        triaged = self._triaged("triage_steps", TRIAGE_STEPS_FILE)
        doubts = triaged[[*keys, "doubt", *signals]].convert_dtypes()
        return self._with_reviews(steps.merge(doubts, how="left", on=keys))

    def triage(self) -> pd.DataFrame:
        """Returns a row for each demonstration, with its doubt score and the count of each signal.

        `columns("triage")` describes the columns. The additional column `review` is the decision of
        reviewers: `open`, `approved` or `rejected`.
        """
        return self._with_reviews(self._triaged("triage", DEMONSTRATION_FILE))

    def _triaged(self, name: str, file: str) -> pd.DataFrame:
        """Concatenates a table of the stage `triage` over all demonstrations."""

        def read(output: str) -> pa.Table:
            folder = self._store.open(output, file)[0]
            return read_table(folder / file, FRAME_SCHEMAS[name])

        tables = in_parallel(read, self._store.outputs(TRIAGE_STAGE.folder))
        return _data_frame(pa.concat_tables([FRAME_SCHEMAS[name].empty_table(), *tables]))

    def _with_reviews(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Adds the column `review`, the decision of reviewers on the demonstration of a row."""
        reviews = Reviews(self._store)
        reviews.refresh()
        statuses = {}
        for key, decisions in reviews.by_demonstration().items():
            version = self._store.current(TRAJECTORIES_STAGE.output(key))
            if version:
                statuses[key] = judge(decisions, subject_of(version, key)).status
        return rows.assign(review=[statuses.get(key, "open") for key in rows["trajectory_id"]])

    def contact_sheet(
        self, steps: pd.DataFrame, columns: int = 4, width: int = 480, most: int = 60
    ) -> Shown:
        """Returns an image of steps, each with its action and target drawn.

        Args:
            steps: rows with `trajectory_id` and `step_index`, for example from `steps()`.
            columns: number of steps in a row of the image.
            width: width of a step in pixels.
            most: maximum number of steps. Further rows are ignored.

        Raises:
            StorageError: a demonstration has no trajectory, or a trajectory has no such step.
            ValueError: there are no rows, or the rows are not steps.
        """
        if steps.empty or "step_index" not in steps:
            raise ValueError("contact_sheet needs rows of steps(), at least one")
        chosen = steps.iloc[:most]
        loaded = {key: self.trajectory(key) for key in chosen["trajectory_id"].unique()}
        tiles = []
        for key, index in zip(chosen["trajectory_id"], chosen["step_index"], strict=True):
            step = _step_of(loaded[key], int(index))
            tile = step_tile(step.files, step.provenance)
            tiles.append(replace(tile, heading=f"{key}  {tile.heading}"))
        title = ""
        if len(chosen) < len(steps):
            title = f"{len(chosen)} of {len(steps)} steps"
        return sheet_of(tiles, columns, width, title)

    def dataset(self, name: str, split: str) -> Any:
        """Returns a split of a training export as a Hugging Face dataset.

        Images are decoded at every access. The column of UI trees contains paths of files. If
        the export is rebuilt, `demo-pipeline prune` keeps the old files for 24 hours by default.

        Args:
            name: sft, messages, grounding, transitions, step_labels or outcome_labels.
            split: train, val, test or held_out.

        Raises:
            ModuleNotFoundError: the library `datasets` is not installed.
            StorageError: the export or split does not exist, or the export has not been built.
        """
        try:
            # `datasets` warns if its progress bars have no widgets.
            with warnings.catch_warnings(action="ignore"):
                import datasets  # noqa: PLC0415 - an optional library
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "store.dataset needs the library `datasets`; the extra `notebook` installs it: "
                "pip install 'demo_pipeline[notebook]'"
            ) from None
        tables = dict[str, tuple[Any, HubTable]]()
        for training_export in training_exports().values():
            for hub_table in training_export.hub_tables:
                tables[hub_table.config] = (training_export.stage, hub_table)
        if name not in tables:
            raise StorageError(f"no dataset {name!r}; there are {', '.join(tables)}")
        stage, table = tables[name]
        with _buildable():
            export = self._store.open(stage.folder)[0]
            file = export / table.folder / f"{split}.parquet"
            splits = [name for name in Split if file.with_name(f"{name}.parquet").is_file()]
            if split not in splits:
                raise StorageError(f"{name} has no split {split!r}; it has {', '.join(splits)}")
            return datasets.Dataset(_with_pictures(read_table(file), table, export))

    def actions(self, demonstration: str) -> pd.DataFrame:
        """Returns a row for each action, including pauses; see `columns("actions")`.

        Raises:
            StorageError: the demonstration has not been processed.
        """
        return self._frame("actions", self._output(ACTIONS_STAGE, demonstration))

    def events(self, demonstration: str) -> pd.DataFrame:
        """Returns a row for each accepted line of the input log; see `columns("events")`.

        Raises:
            StorageError: the demonstration has not been processed.
        """
        return self._frame("events", self._output(EVENTS_STAGE, demonstration))

    def trajectory(self, demonstration: str) -> LoadedTrajectory:
        """Returns a trajectory with its task, steps and result.

        If the store is in a bucket, the trajectory is downloaded.

        Raises:
            StorageError: the demonstration has no trajectory.
            DemonstrationError: a file of the trajectory is damaged.
        """
        self._output(TRAJECTORIES_STAGE, demonstration)
        settings = Settings()
        uploads = open_uploads(settings.uploads, local_path(settings.cache))
        with _buildable():
            folder = open_shown(self._store, demonstration)[0]
            source = DatasetTrajectory(demonstration, str(folder))
            trajectory, rows = load(source)
            steps = [
                LoadedStep(files.index, files.action, rows[files.index], files)
                for files in trajectory.steps
            ]
            return LoadedTrajectory(
                id=demonstration,
                task=trajectory.task,
                steps=tuple(steps),
                result=trajectory.result,
                provenance=_data_frame(read_table(source.provenance, PROVENANCE_SCHEMA)),
                _final_screenshot=trajectory.final_screenshot,
                _find_video=partial(ReviewData(self._store, uploads).video_file, demonstration),
            )

    def sql(self, query: str) -> pd.DataFrame:
        """Runs a SELECT statement with DuckDB over the views of the store.

        `demo-pipeline stats --views` lists the views. A query can only read the files of the store.
        If the store is in a bucket, only the files of the views in the query are downloaded.

        Raises:
            duckdb.Error: DuckDB refuses the query, or a view has no files yet.
        """
        with _buildable(), answering(self._store, query) as sql:
            return sql.execute(query).df()

    def score(
        self,
        frame: pd.DataFrame,
        preset: str | Sequence[str] = "strict",
        *,
        form: str = "messages",
        split: str = "test",
        seed: int = 0,
    ) -> pd.DataFrame:
        """Scores the answers of a model and of baselines; see `columns("scores")`.

        Args:
            frame: a row for each answer, with `trajectory_id`, `step_index` and `response`.
            preset: one or several names of scoring rules; see docs/guides/evaluation.md.
            form: the format of requests and answers, such as `messages`.
            split: the split whose steps are scored, or `any`.
            seed: the seed of the bootstrap for the confidence intervals.

        Raises:
            ValueError: a column is missing.
            StorageError: the rule, form or split does not exist, or the split has no steps.
        """
        names = ("trajectory_id", "step_index", "response")
        if missing := [name for name in names if name not in frame.columns]:
            raise ValueError(f"the frame has no column {', '.join(missing)}")
        presets = (preset,) if isinstance(preset, str) else tuple(preset)
        workspace = replace(Workspace.open(Settings()), store=self._store)
        rows = frame[list(names)].itertuples(index=False, name=None)
        asked = Evaluation(form=form, split=split, presets=presets, seed=seed)
        report = score_rows(workspace, rows, asked)
        return _data_frame(pa.Table.from_pylist(report.rows, schema=FRAME_SCHEMAS["scores"]))

    @staticmethod
    def columns(table: str) -> pd.DataFrame:
        """Describes the columns of a table: column, type, nullable, values, description.

        `values` is empty if all values are allowed. `description` names the unit.

        Args:
            table: trajectories, steps, actions, events, scores, triage or triage_steps.

        Raises:
            ValueError: the table does not exist.
        """
        if table not in FRAME_SCHEMAS:
            raise ValueError(f"no table {table!r}; there are {', '.join(FRAME_SCHEMAS)}")
        schema = FRAME_SCHEMAS[table]
        descriptions = column_descriptions(schema)
        domains = dict(column_domains(schema))
        return pd.DataFrame(
            {
                "column": schema.names,
                "type": [str(field.type) for field in schema],
                "nullable": [field.nullable for field in schema],
                "values": [domains[name].words if name in domains else "" for name in schema.names],
                "description": [descriptions[field.name] for field in schema],
            }
        )

    def _output(self, stage: Stage[RecordingInputs], demonstration: str) -> str:
        """Returns the name of the output of a stage for a demonstration in the store.

        Raises:
            StorageError: the output does not exist.
        """
        output = stage.output(demonstration)
        if not is_safe_id(demonstration) or self._store.current(output) is None:
            near = difflib.get_close_matches(demonstration, self.demonstrations(), 3)
            hint = f"; similar ids: {', '.join(near)}" if near else ""
            raise StorageError(
                f"{self.url} has no {stage.name} of {demonstration!r}{hint}; demonstrations() "
                f"lists all ids, `demo-pipeline inspect {demonstration}` says why it is missing"
            )
        return output

    def _frame(self, name: str, output: str) -> pd.DataFrame:
        """Reads the table `<name>.parquet` of an output, with the schema in `FRAME_SCHEMAS`."""
        file = f"{name}.parquet"
        with _buildable():
            folder = self._store.open(output, file)[0]
            return _data_frame(read_table(folder / file, FRAME_SCHEMAS[name]))


def load_store(url: str | Path | None = None, *, cache: str | Path | None = None) -> NotebookStore:
    """Opens a store for reading.

    Args:
        url: a folder or an `s3://` URL. If None, the setting `store` is used (environment variable
            `DEMO_PIPELINE_STORE`): by default, `data/store` in the project's folder.
        cache: a folder for downloads from a bucket. If None, the setting `cache` is used
            (environment variable `DEMO_PIPELINE_CACHE`): by default, `data/.cache`.

    Raises:
        StorageError: the folder does not exist, or the URL cannot be used.
    """
    settings = Settings()
    root = settings.store
    if url is not None:
        root = str(url)
    if not is_bucket(root) and not local_path(root).is_dir():
        raise StorageError(
            f"{local_path(root)}: no such folder; build a store with `demo-pipeline run`, or name "
            "another with DEMO_PIPELINE_STORE or the argument of `load_store`"
        )
    downloads = settings.cache
    if cache is not None:
        downloads = str(cache)
    return NotebookStore(open_store(root, local_path(downloads)))
