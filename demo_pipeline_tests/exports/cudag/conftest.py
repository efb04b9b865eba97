"""Builds a CUDAG dataset once for all tests that read it or damage a copy of it."""

from pathlib import Path

import pytest

from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import TABLE, make_trajectory
from demo_pipeline_tests.exports.cudag.editing import NAME, copied
from demo_pipeline_tests.exports.forms import build_cudag


@pytest.fixture(scope="package")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds a dataset with all actions of `TABLE` in each split, in lines 1 to 13."""
    root = tmp_path_factory.mktemp("good")
    demos = [
        make_trajectory(root, f"demo_{n}", TABLE, shade=20 * n, instruction=f"Task {n}")
        for n in range(3)
    ]
    demos.append(make_trajectory(root, "drawing", TABLE, shade=90, application="gimp"))
    build_cudag(demos, root / NAME, DatasetSettings(held_out_applications=("gimp",)))
    return root / NAME


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    """Returns a copy of the dataset that a test may change."""
    return copied(good, tmp_path / NAME)
