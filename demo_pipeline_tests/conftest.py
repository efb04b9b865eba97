"""What several folders of tests share: a clean environment, and what is made once to be read."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo_pipeline_tests.builders.form import SMALL, script
from demo_pipeline_tests.builders.recording import write_recording
from demo_pipeline_tests.builders.script import click, type_text
from demo_pipeline_tests.made_chain import DEMOS, open_pipeline, run_chain, write_demos
from demo_pipeline_tests.uploads import TYPED


@pytest.fixture(autouse=True, scope="session")
def clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No setting, settings file, Dagster instance or colour of the person who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("DEMO_PIPELINE_") or name in {"DAGSTER_HOME", "FORCE_COLOR"}:
                patch.delenv(name)
        patch.setenv("DEMO_PIPELINE_CONFIG", str(tmp_path_factory.getbasetemp() / "none.toml"))
        yield


@pytest.fixture(scope="session")
def made_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small demonstrations taken to their trajectories: `uploads/` and `store/`."""
    root = tmp_path_factory.mktemp("made")
    write_demos(root / "uploads")
    pipeline = open_pipeline(root)
    for name in DEMOS:
        assert set(run_chain(pipeline, name).values()) == {"made"}
    return root


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An upload of seven seconds in which somebody ticks a box and types `TYPED`."""
    folder = tmp_path_factory.mktemp("recorded") / "recording"
    write_recording(folder, script(click("Agree"), click("Name"), type_text(TYPED)), SMALL)
    return folder
