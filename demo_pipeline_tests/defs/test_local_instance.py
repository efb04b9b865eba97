"""One command opens Dagster's databases once."""

from pathlib import Path

import dagster as dg
import pytest

from demo_pipeline.defs.local_instance import local_instance


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))


def test_contexts_inside_of_another_share_its_instance() -> None:
    with local_instance() as outer:
        with local_instance() as inner:
            assert inner is outer
        assert outer.get_runs() == []  # still open
    with local_instance() as later:
        assert later is not outer


def test_another_home_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with local_instance() as outer:
        monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "other"))
        with local_instance() as inner:
            assert inner.root_directory != outer.root_directory


def test_an_error_inside_closes_nothing_of_the_outer() -> None:
    with local_instance() as outer:
        with pytest.raises(dg.DagsterInvariantViolationError), local_instance():
            raise dg.DagsterInvariantViolationError
        with local_instance() as again:
            assert again is outer
