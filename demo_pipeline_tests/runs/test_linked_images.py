"""Exports link pictures that they do not change, and compare them with what was committed."""

import os
from pathlib import Path

import pytest

from demo_pipeline.runs.workspace import Workspace
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectories
from demo_pipeline_tests.named_stages import MESSAGES_STAGE, SFT_STAGE
from demo_pipeline_tests.sample_workspace import open_workspace

LINKING = pytest.mark.parametrize("stage", [SFT_STAGE, MESSAGES_STAGE], ids=lambda one: one.name)
_HOUR = 3600


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A store with two trajectories, whose files were written an hour before they were read."""
    (tmp_path / "uploads").mkdir()
    made = tmp_path / "made"
    opened = open_workspace(tmp_path)
    trajectories = [
        make_trajectory(made, "one", [CLICK, CLICK]),
        make_trajectory(made, "two", [CLICK], shade=10),
    ]
    commit_trajectories(opened, trajectories)
    for picture in pictures(tmp_path):
        written = picture.stat().st_mtime - _HOUR
        os.utime(picture, (written, written))
    return opened


def pictures(root: Path) -> list[Path]:
    found = (root / "store").rglob("trajectories/**/*.png")
    return sorted(path for path in found if not path.is_symlink())
