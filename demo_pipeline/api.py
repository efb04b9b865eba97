"""The API for notebooks: a store as pandas DataFrames, trajectories as arrays and models.

Belongs here: the names that `import demo_pipeline as dp` gives. Everything is for reading; stores
are written by the pipeline.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

from demo_pipeline.actions.action_stages import ACTIONS_STAGE
from demo_pipeline.actions.action_tables import ACTIONS_SCHEMA
from demo_pipeline.datasets.index import TRAJECTORIES_SCHEMA
from demo_pipeline.datasets.views import View, create_views
from demo_pipeline.desktopd.models import Result, StepAction, Task
from demo_pipeline.evaluation.score_tables import SCORES_SCHEMA
from demo_pipeline.exports.dataset_counts import allow_only_reading, engine
from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.files.json_files import load_json
from demo_pipeline.files.parquet import column_descriptions, read_table
from demo_pipeline.recording.input_log import EVENTS_SCHEMA
from demo_pipeline.recording.recording_stages import EVENTS_STAGE
from demo_pipeline.runs.damage import storage_message
from demo_pipeline.runs.evaluations import DEFAULT_FORM, DEFAULT_SPLIT, Evaluation, score_rows
from demo_pipeline.runs.queries import opened_views
from demo_pipeline.runs.stages import store_views
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.store.bucket import in_parallel
from demo_pipeline.store.errors import OutputError, StorageError
from demo_pipeline.store.names import is_bucket, local_path, safe_id
from demo_pipeline.store.store import Store, open_store
from demo_pipeline.trajectories.provenance import PROVENANCE_SCHEMA
from demo_pipeline.trajectories.trajectory_files import DatasetTrajectory, load
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

FRAME_SCHEMAS: Mapping[str, pa.Schema] = {
    "trajectories": TRAJECTORIES_SCHEMA,
    "steps": PROVENANCE_SCHEMA,
    "actions": ACTIONS_SCHEMA,
    "events": EVENTS_SCHEMA,
    "scores": SCORES_SCHEMA,
}
# Without these a null would turn whole numbers into fractions, and truth values and texts into
# objects.
_NULLABLE = {
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.string(): pd.StringDtype(),
}


def _data_frame(table: pa.Table) -> pd.DataFrame:
    """A table as a DataFrame whose column types do not depend on the rows.

    Columns that may be null have pandas' nullable types (`Int32`, `Int64`, `boolean`, `string`);
    missing fractions are NaN. Cells with lists are arrays.
    """
    columns = {
        field.name: table[field.name].to_pandas(
            types_mapper=_NULLABLE.get if field.nullable else None
        )
        for field in table.schema
    }
    return pd.DataFrame(columns)


RgbImage = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class LoadedStep:
    """One step.

    Attributes:
        index: 0-based, in the order of the steps.
        action: the model of action.json: `action_type`, `parameters` in canvas pixels,
            `target_element`, `reasoning`. It holds what was typed.
        provenance: column → value of the step's row of `steps()`.
    """

    index: int
    action: StepAction
    provenance: Mapping[str, Any] = field(repr=False)
    _screenshot: Path = field(repr=False)
    _tree: Path = field(repr=False)

    @property
    def screenshot(self) -> RgbImage:
        """The screen before the action: RGB, shape (1080, 1920, 3). Decoded at every access.

        Raises:
            StorageError: the file is not there any more, or is damaged.
        """
        return _read_picture(self._screenshot)

    @property
    def tree(self) -> dict[str, Any]:
        """ui_tree.json: `timestamp`, `screen` and `root`, whose nodes have canvas coordinates.

        Raises:
            JsonFileError: the file is not there any more, or is damaged.
        """
        tree: dict[str, Any] = load_json(self._tree)
        return tree


@dataclass(frozen=True)
class LoadedTrajectory:
    """One trajectory.

    The files belong to one committed version, which `demo-pipeline prune` keeps for a day after it
    was replaced.

    Attributes:
        id: demonstration id.
        task: the model of task.json: `instruction`, `application`, `difficulty`, …
        steps: in order.
        result: the model of result.json: `success`, `completion_time_ms`, `error_message`, …
        provenance: one row per step; `columns("steps")` describes the columns.
    """

    id: str
    task: Task
    steps: tuple[LoadedStep, ...] = field(repr=False)
    result: Result
    provenance: pd.DataFrame = field(repr=False, compare=False)
    _final_screenshot: Path = field(repr=False)

    @property
    def final_screenshot(self) -> RgbImage:
        """The screen after the last step; as `LoadedStep.screenshot`."""
        return _read_picture(self._final_screenshot)


def _load_trajectory(demonstration: str, folder: Path) -> LoadedTrajectory:
    """The trajectory in a folder of the OSWorld-Desktopd layout with provenance.parquet.

    Raises:
        DemonstrationError: a file is missing or damaged; the problems name the files.
    """
    source = DatasetTrajectory(demonstration, str(folder))
    trajectory, rows = load(source)
    return LoadedTrajectory(
        id=demonstration,
        task=trajectory.task,
        steps=tuple(
            LoadedStep(step.index, step.action, rows[step.index], step.screenshot, step.ui_tree)
            for step in trajectory.steps
        ),
        result=trajectory.result,
        provenance=_data_frame(read_table(source.provenance, PROVENANCE_SCHEMA)),
        _final_screenshot=trajectory.final_screenshot,
    )


def _read_picture(path: Path) -> RgbImage:
    data = path.read_bytes() if path.is_file() else b""
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB) if data else None
    if picture is None:
        raise StorageError(
            f"{path.parent.name}/{path.name} cannot be read; load the trajectory again"
        )
    rgb: RgbImage = np.asarray(picture, np.uint8)
    return rgb


@contextmanager
def _bucket_views(
    store: Store, query: str
) -> Iterator[tuple[duckdb.DuckDBPyConnection, list[Path]]]:
    """DuckDB with the views that a query mentions, over downloads of their files alone.

    DuckDB itself names only tables that exist.
    """
    words = {word.lower() for word in re.findall(r"\w+", query)}
    views = [view for view in store_views() if view.name in words]
    with ExitStack() as stack:
        sql = stack.enter_context(engine())
        root = Path(stack.enter_context(TemporaryDirectory(prefix="demo_pipeline-")))
        for view in views:
            _place_files(store, view, root, stack)
        create_views(sql, views, {view.output: root / view.output for view in views})
        yield sql, [root, *(path.resolve() for path in root.rglob("*") if path.is_symlink())]


def _place_files(store: Store, view: View, root: Path, stack: ExitStack) -> None:
    """Link `root/<output>` to a folder with the view's files, for every output that has some."""

    def place(output: str) -> None:
        rest = view.files.split("/")[len(output.split("/")) :]
        folder, _ = stack.enter_context(store.open_files(output, "/".join(rest)))
        link = root / output
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(folder)

    in_parallel(place, store.outputs(view.output))


@contextmanager
def _buildable() -> Iterator[None]:
    """Turn an error of an output into one that says which command builds it."""
    try:
        yield
    except OutputError as error:
        raise StorageError(storage_message(error)) from None


__all__ = ["LoadedStep", "LoadedTrajectory", "NotebookStore", "load_store"]


class NotebookStore:
    """A store for reading. The tables hold what people typed; think before you publish them.

    Args:
        store: the opened store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"NotebookStore({self.url!r})"

    @property
    def url(self) -> str:
        """The folder or the `s3://` URL."""
        return self._store.url

    def demonstrations(self) -> list[str]:
        """Ids of the demonstrations that have a trajectory, sorted."""
        return [name.rpartition("/")[2] for name in self._store.outputs(TRAJECTORIES_STAGE.folder)]

    def trajectories(self) -> pd.DataFrame:
        """One row per trajectory of the built dataset; `columns("trajectories")` describes it.

        Raises:
            StorageError: the datasets have not been built.
        """
        return self._frame("trajectories", INDEX_STAGE.folder)

    def steps(self) -> pd.DataFrame:
        """One row per step of the built dataset: where screenshot, tree and target came from.

        `columns("steps")` describes the columns.

        Raises:
            StorageError: the datasets have not been built.
        """
        return self._frame("steps", INDEX_STAGE.folder)

    def actions(self, demonstration: str) -> pd.DataFrame:
        """One row per action, pauses included; `columns("actions")` describes the columns.

        Raises:
            StorageError: the demonstration has not been processed.
        """
        return self._frame("actions", ACTIONS_STAGE.output(safe_id(demonstration)))

    def events(self, demonstration: str) -> pd.DataFrame:
        """One row per accepted line of the input log; `columns("events")` describes the columns.

        Raises:
            StorageError: the demonstration has not been processed.
        """
        return self._frame("events", EVENTS_STAGE.output(safe_id(demonstration)))

    def trajectory(self, demonstration: str) -> LoadedTrajectory:
        """One trajectory with its task, steps and result; from a bucket it is downloaded.

        Raises:
            StorageError: the demonstration has no trajectory.
            DemonstrationError: a file of it is damaged.
        """
        key = safe_id(demonstration)
        output = TRAJECTORIES_STAGE.output(key)
        with _buildable(), self._store.open(output) as (folder, _):
            return _load_trajectory(key, folder)

    def sql(self, query: str) -> pd.DataFrame:
        """The answer of DuckDB to one SQL statement over the views of the store.

        The views are those of `demo-pipeline stats --views`. From a bucket only the files of the
        views that the query mentions are downloaded.

        Raises:
            duckdb.Error: DuckDB refuses the query, or a view has no files yet.
        """
        with _buildable(), ExitStack() as stack:
            if is_bucket(self.url):
                sql, folders = stack.enter_context(_bucket_views(self._store, query))
            else:
                folders = [local_path(self.url)]
                sql, _ = stack.enter_context(opened_views(folders[0]))
            allow_only_reading(sql, query, folders)
            return sql.execute(query).df()

    def score(
        self,
        frame: pd.DataFrame,
        preset: str | Sequence[str] = "strict",
        *,
        form: str = DEFAULT_FORM,
        split: str = DEFAULT_SPLIT,
        seed: int = 0,
    ) -> pd.DataFrame:
        """Scores of a model's answers, beside baselines; `columns("scores")` describes the columns.

        Args:
            frame: a row per answer, with `trajectory_id`, `step_index` and `response`.
            preset: the rule, or several: see docs/evaluation.md.
            form: in which the model was asked.
            split: whose steps were asked about; `any`: all.
            seed: of the bootstrap.

        Raises:
            ValueError: a column is missing.
            StorageError: there is no such rule, form or split, or the split holds no step.
        """
        names = ("trajectory_id", "step_index", "response")
        if missing := [name for name in names if name not in frame.columns]:
            raise ValueError(f"the frame has no column {', '.join(missing)}")
        presets = (preset,) if isinstance(preset, str) else tuple(preset)
        workspace = replace(Workspace.open(Settings()), store=self._store)
        rows = frame[list(names)].itertuples(index=False, name=None)
        report = score_rows(workspace, rows, Evaluation(form, split, presets, seed))
        return _data_frame(pa.Table.from_pylist(report.rows, schema=FRAME_SCHEMAS["scores"]))

    @staticmethod
    def columns(table: str) -> pd.DataFrame:
        """The columns of a table, one per row: column, type, nullable, description with the unit.

        Args:
            table: trajectories, steps, actions, events or scores.

        Raises:
            ValueError: another name.
        """
        if table not in FRAME_SCHEMAS:
            raise ValueError(f"no table {table!r}; there are {', '.join(FRAME_SCHEMAS)}")
        schema = FRAME_SCHEMAS[table]
        descriptions = column_descriptions(schema)
        return pd.DataFrame(
            {
                "column": schema.names,
                "type": [str(field.type) for field in schema],
                "nullable": [field.nullable for field in schema],
                "description": [descriptions[field.name] for field in schema],
            }
        )

    def _frame(self, name: str, output: str) -> pd.DataFrame:
        """The table `<name>.parquet` of an output, with the columns that it is declared with."""
        file = f"{name}.parquet"
        with _buildable(), self._store.open_files(output, file) as (folder, _):
            return _data_frame(read_table(folder / file, FRAME_SCHEMAS[name]))


def load_store(url: str | Path | None = None, *, cache: str | Path | None = None) -> NotebookStore:
    """Open a store for reading.

    Args:
        url: a folder or an `s3://` URL; None: `DEMO_PIPELINE_STORE`, or `data/store` in the
            checkout.
        cache: a folder for downloads from a bucket; None: `DEMO_PIPELINE_CACHE`, or `data/.cache`.

    Raises:
        StorageError: the folder does not exist, or the URL cannot be used.
    """
    settings = Settings()
    root = settings.store if url is None else str(url)
    if not is_bucket(root) and not local_path(root).is_dir():
        raise StorageError(
            f"{local_path(root)}: no such folder; `demo-pipeline run` builds a store, "
            "DEMO_PIPELINE_STORE or the argument of `load_store` names another"
        )
    downloads = settings.cache if cache is None else str(cache)
    return NotebookStore(open_store(root, local_path(downloads)))
