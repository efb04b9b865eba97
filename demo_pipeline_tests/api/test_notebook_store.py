"""The API as used in a notebook, with the store in a folder and in a bucket on an S3 server."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

import demo_pipeline as dp
from demo_pipeline.api import FRAME_SCHEMAS
from demo_pipeline.files.json_files import dump_json, load_json
from demo_pipeline.runs.stages import dataset_stages_by_name
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.store.errors import StorageError
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.sample_workspace import DEMOS, copy_of, open_workspace, run_all_stages
from demo_pipeline_tests.simulator.s3_server import S3Server

NAMES = ("trajectory_index", "sft_samples", "messages_dataset")
HEAVY = ("dagster", "pandas", "cv2", "numpy", "pyarrow", "duckdb", "pydantic", "typer")


def build_datasets(pipeline: Workspace) -> None:
    for name in NAMES:
        run_dataset_stage(pipeline, dataset_stages_by_name()[name])


@pytest.fixture(scope="module")
def folder(made_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a store with two demonstrations and their datasets, which tests must not change."""
    root = copy_of(made_root, tmp_path_factory.mktemp("api") / "root")
    build_datasets(open_workspace(root))
    return root / "store"


@pytest.fixture(scope="module")
def bucket(
    made_root: Path, seaweedfs: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Yields the URL of the same store in a bucket.

    During the tests of the module, environment variables configure the S3 server.
    """
    with seaweedfs.connected():
        url = f"{seaweedfs.make_bucket()}/store"
        cache = str(tmp_path_factory.mktemp("cache"))
        pipeline = open_workspace(made_root, store=url, cache=cache)
        for name in DEMOS:
            run_all_stages(pipeline, name)
        build_datasets(pipeline)
        yield url


@pytest.fixture
def local(folder: Path) -> dp.NotebookStore:
    return dp.load_store(folder)


@pytest.fixture
def remote(bucket: str, tmp_path: Path) -> dp.NotebookStore:
    """Returns the store in the bucket with an empty cache, as on another machine."""
    return dp.load_store(bucket, cache=tmp_path / "downloads")


def downloaded(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "downloads").rglob("*") if path.is_file()}


def in_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


class TestImport:
    def test_the_package_imports_nothing_heavy_until_its_first_use(self):
        loaded = f"[name for name in {HEAVY!r} if name in sys.modules]"
        assert in_python(f"import sys, demo_pipeline; print({loaded})") == "[]"
        later = in_python(
            "import sys, demo_pipeline as dp; dp.load_store;"
            "print('pandas' in sys.modules, 'dagster' in sys.modules)"
        )
        assert later == "True False"

    def test_the_public_names_are_listed_and_others_are_refused(self):
        assert {"load_store", "NotebookStore", "LoadedTrajectory"} <= set(dir(dp))
        assert all(getattr(dp, name) for name in dir(dp))
        with pytest.raises(AttributeError, match="no_such_name"):
            _ = dp.no_such_name


def answers(trajectory: str = "first", response: str = "nothing") -> pd.DataFrame:
    """Returns a table with an answer to the first step."""
    row = {"trajectory_id": trajectory, "step_index": 0, "response": response, "note": "x"}
    return pd.DataFrame([row])


class TestScores:
    def test_answers_are_scored_beside_baselines(self, local):
        first = local.trajectory("first").steps[0].action.parameters
        x, y = (round(part) for part in (first.x / 1.92, first.y / 1.08))
        arguments = f'{{"action": "left_click", "coordinate": [{x}, {y}]}}'
        text = f'<tool_call>{{"name": "computer_use", "arguments": {arguments}}}</tool_call>'
        scores = local.score(answers(response=text), ["strict", "agentnetbench"], split="any")
        everything = scores.query("dimension == 'all' and preset == 'strict'").set_index("answers")
        steps = everything["steps"]["predictions"]
        assert everything["score"]["predictions"] == pytest.approx(1 / steps)
        assert everything["score"]["truth"] == 1
        assert set(scores["preset"]) == {"strict", "agentnetbench"}

    def test_predictions_that_cannot_be_scored_are_refused(self, local):
        with pytest.raises(ValueError, match="no column response"):
            local.score(answers().drop(columns="response"))
        with pytest.raises(StorageError, match="there is no such preset"):
            local.score(answers(), "nice")
        with pytest.raises(StorageError, match="no step is in the split held_out"):
            local.score(answers(), split="held_out")


class TestTables:
    def test_the_columns_of_each_table_are_described(self, local):
        frames = {
            "trajectories": local.trajectories(),
            "steps": local.steps(),
            "actions": local.actions("first"),
            "events": local.events("first"),
            "scores": local.score(answers(), split="any"),
            "triage": local.triage().drop(columns="review"),
        }
        assert set(frames) == set(FRAME_SCHEMAS) - {"triage_steps"}  # see `steps(triage=True)`
        for name, frame in frames.items():
            described = local.columns(name)
            assert list(described["column"]) == list(frame.columns)
            assert all(described["description"])
            assert len(frame) > 0
        units = local.columns("steps").set_index("column")["description"]
        assert "milliseconds" in units["lead_ms"]

    def test_the_tables_have_the_rows_of_the_store(self, local, folder):
        assert local.demonstrations() == ["first", "second"]
        trajectories = local.trajectories().set_index("trajectory_id")
        for key in local.demonstrations():
            steps = sorted((folder / "trajectories" / key / "steps").iterdir())
            assert trajectories["steps"][key] == len(steps)
            assert list(local.steps().query("trajectory_id == @key")["step_index"]) == list(
                range(len(steps))
            )
        assert "Ab, c!" in set(local.actions("first")["text"].dropna())

    def test_column_types_do_not_depend_on_the_rows(self, local):
        first, second = (local.actions(key).dtypes.to_dict() for key in DEMOS)
        assert first == second
        assert first["amount"] == pd.Int32Dtype()  # null except for scrolls
        assert first["text"] == pd.StringDtype()
        assert local.steps().dtypes["cursor_agrees"] == pd.BooleanDtype()

    def test_an_unknown_table_is_refused_with_the_known_ones(self):
        with pytest.raises(ValueError, match="trajectories, steps, actions, events"):
            dp.NotebookStore.columns("frames")


class TestTrajectory:
    def test_a_trajectory_has_task_steps_and_result(self, local, folder):
        trajectory = local.trajectory("first")
        written = load_json(folder / "trajectories/first/task.json")
        assert trajectory.task.instruction == written["instruction"]
        assert trajectory.result.total_steps == len(trajectory.steps) == 4
        for number, step in enumerate(trajectory.steps):
            place = folder / f"trajectories/first/steps/{number:03d}"
            assert step.index == number
            assert step.action.model_dump(mode="json") == load_json(place / "action.json")
            assert step.tree == load_json(place / "ui_tree.json")
            assert step.provenance["lead_ms"] == trajectory.provenance["lead_ms"][number]
        assert set(trajectory.provenance["trajectory_id"]) == {"first"}

    def test_a_screenshot_is_red_green_blue(self, local, folder):
        """Compares with another decoder, because a bug could easily swap red and blue."""
        av = pytest.importorskip("av")
        trajectory = local.trajectory("first")
        for picture, name in (
            (trajectory.steps[0].screenshot, "steps/000/screenshot.png"),
            (trajectory.final_screenshot, "final_screenshot.png"),
        ):
            assert (picture.shape, picture.dtype) == ((1080, 1920, 3), np.dtype(np.uint8))
            with av.open(str(folder / "trajectories/first" / name)) as container:
                frame = next(container.decode(video=0)).to_ndarray(format="rgb24")
            assert np.array_equal(picture, frame)
            assert not np.array_equal(picture, picture[..., ::-1])

    def test_the_error_about_a_missing_file_says_what_to_do(self, folder, tmp_path):
        copy = copy_of(folder, tmp_path / "store")
        trajectory = dp.load_store(copy).trajectory("first")
        for file in (copy / ".versions/trajectories/first").rglob("screenshot.png"):
            file.unlink()
        with pytest.raises(StorageError, match=r"000/screenshot\.png .* load the trajectory again"):
            _ = trajectory.steps[0].screenshot


class TestErrors:
    @pytest.mark.parametrize("method", ["actions", "events", "trajectory"])
    def test_an_unknown_demonstration_is_reported_with_similar_ids(self, local, method):
        with pytest.raises(StorageError, match="'secnd'; similar ids: second; "):
            getattr(local, method)("secnd")

    def test_datasets_that_were_not_built_are_named(self, made_root):
        store = dp.load_store(made_root / "store")
        assert store.demonstrations() == ["first", "second"]
        with pytest.raises(StorageError, match="--select trajectory_index"):
            store.trajectories()

    def test_a_folder_that_does_not_exist_is_no_empty_store(self, tmp_path):
        with pytest.raises(StorageError, match="no such folder"):
            dp.load_store(tmp_path / "misspelt")

    def test_tables_of_older_versions_have_all_columns(self, tmp_path):
        """Columns that were added in later versions are null."""
        from demo_pipeline_tests.store.making_outputs import recipe

        store = Workspace.open(Settings(store=str(tmp_path))).store
        with store.stage("actions/old") as staging:
            duckdb.sql(
                "COPY (SELECT 0::INTEGER AS action_index, 'click' AS action_type)"
                f" TO '{staging.path}/actions.parquet'"
            )
            dump_json(staging.path / "other.json", {})
            store.commit(staging, recipe(), {})
        frame = dp.load_store(tmp_path).actions("old")
        assert list(frame.columns) == FRAME_SCHEMAS["actions"].names
        assert frame["press_ms"].isna().all()


class TestDefaults:
    def test_the_store_of_the_settings_is_the_default(self, folder, monkeypatch):
        monkeypatch.setenv("DEMO_PIPELINE_STORE", str(folder))
        assert dp.load_store().url == str(folder)
        assert str(folder) in repr(dp.load_store())


class TestBucket:
    def test_every_table_is_that_of_the_folder(self, local, remote, tmp_path):
        assert remote.demonstrations() == local.demonstrations()
        pd.testing.assert_frame_equal(remote.trajectories(), local.trajectories())
        pd.testing.assert_frame_equal(remote.steps(), local.steps())
        pd.testing.assert_frame_equal(remote.actions("first"), local.actions("first"))
        pd.testing.assert_frame_equal(remote.events("second"), local.events("second"))
        assert "screenshot.png" not in downloaded(tmp_path)

    def test_only_the_mentioned_views_are_downloaded(self, remote, tmp_path):
        remote.sql("SELECT count(*) FROM actions")
        tables = {name for name in downloaded(tmp_path) if name.endswith(".parquet")}
        assert tables == {"actions.parquet"}
        with pytest.raises(duckdb.Error):
            remote.sql("SELEC")
