"""Where else people find reviews and triage: the command line and SQL."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from demo_pipeline.api import load_store
from demo_pipeline.cli.app import app


def test_inspect_says_how_to_look_at_it(made_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("uploads", "store"):
        monkeypatch.setenv(f"DEMO_PIPELINE_{name.upper()}", str(made_root / name))
    told = CliRunner().invoke(app, ["inspect", "first"])
    assert told.output.endswith("demo-pipeline review first\n")


def test_triage_is_asked_by_sql(made_root: Path) -> None:
    store = load_store(made_root / "store")
    found = store.sql("SELECT trajectory_id, doubt, no_effect_steps FROM triage ORDER BY 1")
    assert list(found["trajectory_id"]) == ["first", "second"]
    steps = store.sql("SELECT trajectory_id, count(*) AS n FROM triage_steps GROUP BY 1 ORDER BY 1")
    assert list(steps["trajectory_id"]) == ["first", "second"]
