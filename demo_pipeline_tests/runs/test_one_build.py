"""A dataset is built by one process at a time; the next one finds it up to date."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from demo_pipeline.runs.datasets import run_dataset_stage
from demo_pipeline.runs.stages import DATASET_STAGE_BY_NAME
from demo_pipeline_tests.datasets.builders import make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectory
from demo_pipeline_tests.sample_workspace import open_workspace

STAGE = DATASET_STAGE_BY_NAME["sft_samples"]
STEPS = (("click", {"x": 500, "y": 300, "button": "left"}), ("type", {"text": "hello"}))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with one trajectory."""
    made = make_trajectory(tmp_path / "made", "demo", STEPS)
    commit_trajectory(open_workspace(tmp_path), made)
    return tmp_path


def test_the_second_waits_and_builds_nothing(root: Path) -> None:
    workspace = open_workspace(root)
    with ThreadPoolExecutor(2) as pool:
        with workspace.store.parts.one_build(STAGE.name):  # as another process would
            builds = [pool.submit(run_dataset_stage, workspace, STAGE) for _ in range(2)]
            assert wait(builds, timeout=0.5).done == set()
            assert workspace.store.current(STAGE.folder) is None
        assert sorted(build.result().status for build in builds) == ["made", "unchanged"]


def test_another_dataset_is_not_waited_for(root: Path) -> None:
    workspace = open_workspace(root)
    with workspace.store.parts.one_build("messages_dataset"), ThreadPoolExecutor(1) as pool:
        built = pool.submit(run_dataset_stage, workspace, STAGE)
        assert built.result(timeout=60).status == "made"


def test_a_killed_process_is_not_waited_for(root: Path) -> None:
    code = f"""
import time
from pathlib import Path
from demo_pipeline_tests.sample_workspace import open_workspace
with open_workspace(Path({str(root)!r})).store.parts.one_build({STAGE.name!r}):
    print("building", flush=True)
    time.sleep(60)
"""
    command = (sys.executable, "-c", code)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "building\n"
        holder.send_signal(signal.SIGKILL)
    workspace = open_workspace(root)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run_dataset_stage, workspace, STAGE).result(timeout=60).status == "made"
