"""Builds every asset once for all tests of damages."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from demo_pipeline_tests.breakages.built import Output, build_outputs


@pytest.fixture(scope="package")
def outputs(tmp_path_factory: pytest.TempPathFactory, real_root: Path) -> Mapping[str, Output]:
    return build_outputs(tmp_path_factory.mktemp("breakages") / "root", real_root)
