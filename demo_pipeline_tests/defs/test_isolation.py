"""No error of one demonstration, whatever its class, ends a loop over all of them."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import dagster as dg
import pytest

from demo_pipeline.cli.run_commands import select_demonstrations
from demo_pipeline.defs import maintenance_jobs
from demo_pipeline.defs.dataset_assets import reconcile_uploads
from demo_pipeline.defs.demonstration_runs import open_table
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.runs.batch import DemonstrationTask, process
from demo_pipeline.runs.quarantine import (
    list_quarantine,
    quarantine_collisions,
    quarantine_demonstration,
)
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import Summary
from demo_pipeline.store.bucket import S3CallError
from demo_pipeline.store.errors import (
    ChangedOutput,
    MissingOutput,
    ObjectChangedError,
    StorageError,
)
from demo_pipeline_tests.defs.bench import Bench, bench, ticked

ERRORS: tuple[Exception, ...] = (
    StorageError("it cannot be read"),
    MissingOutput("events/bad"),
    ChangedOutput("events/bad", "a"),
    ObjectChangedError("replaced"),
    S3CallError("s3://b/bad", "SlowDown", 503),
    DemonstrationError(Problem("code", "meta.json", "is bad")),
    OSError(errno.ENOSPC, "full"),
    OSError(errno.EIO, "broken"),
    PermissionError(errno.EACCES, "no"),
    MemoryError(),
    RecursionError(),
    OverflowError(),
    ValueError("hunter2"),
    KeyError("hunter2"),
    TypeError("hunter2"),
    AssertionError(),
)
GOOD = ("a", "z")


class Failing:
    """Anything, of which the n-th call about `bad` and all later ones raise an error."""

    def __init__(self, inner: Any, error: Exception, first: int = 1) -> None:
        self._inner, self._error, self._first = inner, error, first
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def call(*arguments: Any, **named: Any) -> Any:
            if any("bad" in str(one) for one in (*arguments, *named.values())):
                self.calls += 1
                if self.calls >= self._first:
                    raise self._error
            return value(*arguments, **named)

        return call


def with_failing(workspace: Workspace, error: Exception, first: int) -> tuple[Workspace, Failing]:
    store = Failing(workspace.store, error, first)
    uploads: Any = Failing(workspace.uploads, error, first)
    objects = Failing(workspace.uploads.objects, error, first)
    uploads.objects = objects
    return replace(workspace, store=cast(Any, store), uploads=uploads), store


@pytest.fixture
def made(tmp_path: Path, made_root: Path) -> Iterator[Bench]:
    """Three uploads, each with a quarantine record."""
    with bench(tmp_path) as one:
        for name in ("a", "bad", "z"):
            (one.uploads / name).mkdir()
            for file in (made_root / "uploads" / "first").iterdir():
                (one.uploads / name / file.name).write_bytes(file.read_bytes())
            problems = [Problem("c", "f", "m")]
            quarantine_demonstration(one.workspace.store, name, "events", "f", problems)
        one.catalogue()
        yield one


every_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


@every_error
def test_the_command_line_selects_the_others(made: Bench, error: Exception) -> None:
    for first in (1, 2, 3):
        failing, _ = with_failing(made.workspace, error, first)
        chosen = select_demonstrations(failing, None, ["a", "bad", "z"], forced=(), retry=True)
        assert chosen.todo == ["a", "bad", "z"]


@every_error
def test_workers_go_on_with_the_others(made: Bench, error: Exception) -> None:
    def build(inputs: RecordingInputs, out: Path) -> Summary:
        if inputs.demonstration == "bad":
            raise error
        return STAGES[0].build(inputs, out)

    tasks = [DemonstrationTask(key) for key in ("a", "bad", "z")]
    first = replace(STAGES[0], build=build)
    found = {one.demonstration: one for one in process(made.workspace, tasks, [first])}
    assert [found[key].status.is_done for key in ("a", "bad", "z")] == [True, False, True]
    assert found["bad"].problems
    assert "hunter2" not in str(found["bad"].problems)


@pytest.mark.no_cover  # other tests run the same lines
@every_error
@pytest.mark.parametrize("first", [1, 2, 3])
def test_the_sensor_requests_the_others(made: Bench, error: Exception, first: int) -> None:
    failing, _ = with_failing(made.workspace, error, first)
    requested: list[str | None] = []
    for _ in range(3):
        requested += ticked(Watching(made, failing), "new_uploads").keys  # type: ignore[arg-type]
    assert set(GOOD) <= set(requested)


class Watching:
    """A bench whose sensors see another workspace."""

    def __init__(self, inner: Bench, workspace: Workspace) -> None:
        self._inner, self.workspace = inner, workspace

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@every_error
@pytest.mark.parametrize("first", [1, 2])
def test_the_quarantine_and_the_accounting_count_the_others(
    made: Bench, error: Exception, first: int
) -> None:
    failing, store = with_failing(made.workspace, error, first)
    assert {record.demonstration for record in list_quarantine(failing.store)} == {"a", "bad", "z"}
    assert store.calls >= first
    found = reconcile_uploads(made.instance, failing)
    assert found.listed == 3


@every_error
def test_reprocessing_asks_about_the_others(made: Bench, error: Exception) -> None:
    failing, _ = with_failing(made.workspace, error, 1)
    with dg.build_op_context(instance=made.instance, resources={"workspace": failing}) as context:
        maintenance_jobs._request_reprocessing(context)
    with open_table(made.instance, made.workspace) as table:
        assert table.by_id() == {}


def test_a_collision_that_cannot_be_recorded_hides_no_other(made: Bench) -> None:
    colliding = dict.fromkeys(("a", "bad", "z"), ("x", "y"))
    for error in ERRORS:
        failing, _ = with_failing(made.workspace, error, 1)
        released, errors = quarantine_collisions(failing, colliding)
        assert (released, len(errors)) == ([], 1)
    codes = {
        record.demonstration: record.problems[0]["code"]
        for record in list_quarantine(made.workspace.store)
    }
    assert codes == {"a": "id_collision", "bad": "c", "z": "id_collision"}
