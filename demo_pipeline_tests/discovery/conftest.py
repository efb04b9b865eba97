"""A scene for each test."""

from pathlib import Path

import pytest

from demo_pipeline_tests.discovery.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "discovery" / "table.sqlite")
