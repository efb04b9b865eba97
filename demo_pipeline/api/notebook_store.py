"""Opening a store in a notebook: `load_store` and what it returns.

Belongs here: the names that `import demo_pipeline as dp` gives. Everything is for reading; stores
are written by the pipeline.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa

from demo_pipeline.actions.action_stages import ACTIONS_STAGE
from demo_pipeline.api.data_frames import FRAME_SCHEMAS, data_frame, described_columns
from demo_pipeline.api.loaded_trajectory import LoadedStep, LoadedTrajectory, load_trajectory
from demo_pipeline.api.sql_frames import query_frame
from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.files.parquet import read_table
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.evaluations import (
    DEFAULT_FORM,
    DEFAULT_SPLIT,
    Evaluation,
    score_rows,
)
from demo_pipeline.pipeline.rebuild import storage_message
from demo_pipeline.recording.recording_stages import EVENTS_STAGE
from demo_pipeline.settings import Settings
from demo_pipeline.storage.errors import OutputError, StorageError
from demo_pipeline.storage.ids import safe_id
from demo_pipeline.storage.objects.urls import is_bucket, local_path
from demo_pipeline.storage.store.store import Store, open_store
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

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
        try:
            with self._store.open(TRAJECTORIES_STAGE.output(key)) as (folder, _):
                return load_trajectory(key, folder)
        except OutputError as error:
            raise StorageError(storage_message(error)) from None

    def sql(self, query: str) -> pd.DataFrame:
        """The answer of DuckDB to one SQL statement over the views of the store.

        The views are those of `demo-pipeline stats --views`. From a bucket only the files of the
        views that the query mentions are downloaded.

        Raises:
            duckdb.Error: DuckDB refuses the query, or a view has no files yet.
        """
        try:
            return query_frame(self._store, query)
        except OutputError as error:
            raise StorageError(storage_message(error)) from None

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
        return data_frame(pa.Table.from_pylist(report.rows, schema=FRAME_SCHEMAS["scores"]))

    @staticmethod
    def columns(table: str) -> pd.DataFrame:
        """What the columns of `trajectories`, `steps`, … or `scores` mean, with units.

        Raises:
            ValueError: another name.
        """
        return described_columns(table)

    def _frame(self, name: str, output: str) -> pd.DataFrame:
        """The table `<name>.parquet` of an output, with the columns that it is declared with."""
        file = f"{name}.parquet"
        try:
            with self._store.open_files(output, file) as (folder, _):
                return data_frame(read_table(folder / file, FRAME_SCHEMAS[name]))
        except OutputError as error:
            raise StorageError(storage_message(error)) from None


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
