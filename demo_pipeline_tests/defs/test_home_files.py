"""What commands read of DAGSTER_HOME without Dagster agrees with what Dagster says."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage import tags as dagster_tags

from demo_pipeline.defs import tags
from demo_pipeline.defs.home_files import WaitingDemonstration, is_settled, waiting_in_home
from demo_pipeline.defs.jobs import register_partitions
from demo_pipeline.defs.run_history import waiting_demonstrations, waiting_tags
from demo_pipeline.defs.run_recovery import local_run_tags


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "dagster.yaml").write_text("# a comment\n\ntelemetry:\n  enabled: false\n")
    return tmp_path


@pytest.fixture
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.from_config(str(home)) as made:
        register_partitions(made, ["a", "b"])
        yield made


def open_run(instance: dg.DagsterInstance, run_id: str, status: str, **more: str) -> None:
    run = dg.DagsterRun(
        job_name="job", run_id=run_id, status=dg.DagsterRunStatus(status), tags=more
    )
    instance.add_run(run)


@pytest.mark.usefixtures("instance")
def test_what_is_registered_is_settled(home: Path) -> None:
    assert is_settled(home, [])
    assert is_settled(home, ["b", "a"])
    assert not is_settled(home, ["a", "new"])


@pytest.mark.parametrize("status", ["NOT_STARTED", "STARTING", "STARTED", "CANCELING"])
def test_an_open_run_of_a_process_is_not_settled(
    instance: dg.DagsterInstance, home: Path, status: str
) -> None:
    open_run(instance, "run-1", status, **local_run_tags("run-1"))
    assert not is_settled(home, ["a"])


def test_ended_runs_and_those_that_no_process_claimed_are_settled(
    instance: dg.DagsterInstance, home: Path
) -> None:
    open_run(instance, "run-1", "SUCCESS", **local_run_tags("run-1"))
    open_run(instance, "run-2", "FAILURE", **local_run_tags("run-2"))
    open_run(instance, "run-3", "STARTED")
    assert is_settled(home, ["a"])


def test_a_home_that_was_never_used_is_not_settled_and_nothing_waits(home: Path) -> None:
    assert not is_settled(home, [])
    assert waiting_in_home(home) == []


def test_what_waits_is_what_dagster_says(instance: dg.DagsterInstance, home: Path) -> None:
    def run(key: str, status: str, **more: str) -> None:
        number = instance.get_runs_count()
        open_run(instance, f"run-{number}", status, **{tags.PARTITION_NAME_TAG: key}, **more)

    full, broken = waiting_tags("No space left on device"), waiting_tags("Network is unreachable")
    for key in ("later done", "later failed", "again", "once"):
        run(key, "FAILURE", **full)
    run("later done", "SUCCESS")
    run("later failed", "FAILURE")
    run("again", "FAILURE", **broken)
    run("retried in place", "SUCCESS", **full)
    found = waiting_in_home(home)
    assert found == waiting_demonstrations(instance)
    assert found == [
        WaitingDemonstration("again", "Network is unreachable", 2),
        WaitingDemonstration("once", "No space left on device", 1),
    ]
    open_run(instance, "run-batch", "SUCCESS", **{"demo_pipeline/batch": "a,b"})
    assert waiting_in_home(home) is None  # only Dagster's way reads what waits in such runs


@pytest.mark.usefixtures("instance")
@pytest.mark.parametrize(
    "text",
    [
        "storage:\n  postgres:\n    postgres_url: x\n",
        "run_storage:\n  module: x\n",
        "nonsense: 1\n",
        "telemetry: [\n]\n",
        "{telemetry: {enabled: false}, storage: {sqlite: {base_dir: x}}}\n",
        "'storage':\n  sqlite:\n    base_dir: x\n",
    ],
)
def test_of_another_storage_nothing_is_said(home: Path, text: str) -> None:
    assert is_settled(home, ["a"])
    (home / "dagster.yaml").write_text(text)
    assert not is_settled(home, ["a"])
    assert waiting_in_home(home) is None


def test_a_damaged_database_says_nothing(instance: dg.DagsterInstance, home: Path) -> None:
    instance.dispose()
    for file in (home / "history").rglob("*.db*"):
        file.write_bytes(b"no database")
    assert not is_settled(home, [])
    assert waiting_in_home(home) is None


def test_the_names_of_dagsters_tags_are_those_of_dagster() -> None:
    names = [name for name in vars(tags) if name.isupper() and hasattr(dagster_tags, name)]
    assert len(names) >= 5
    assert {name: getattr(tags, name) for name in names} == {
        name: getattr(dagster_tags, name) for name in names
    }
