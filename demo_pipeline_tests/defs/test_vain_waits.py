"""Tests that a command waits only once for a lasting error, not in every demonstration."""

import errno
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest

from demo_pipeline.runs.failures import TransientError, redacted_errors
from demo_pipeline.runs.local_runs import LocalRuns
from demo_pipeline.runs.vain_waits import VainWaits
from demo_pipeline.store.bucket import S3CallError
from demo_pipeline.store.errors import StorageError
from demo_pipeline_tests.dagster_homes import WITHOUT_OUTPUT_YAML
from demo_pipeline_tests.defs.bench import Bench, open_bench

DISK_FULL = "No space left on device"


@pytest.fixture
def bench(tmp_path: Path, made_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A workspace with two demonstrations, and a DAGSTER_HOME that workers can open."""
    with open_bench(tmp_path, source=made_root, kept=True) as opened:
        (tmp_path / "home" / "dagster.yaml").write_text(WITHOUT_OUTPUT_YAML)
        monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
        monkeypatch.setattr("demo_pipeline.defs.reporting.RETRY_SECONDS", (0.1, 0.1, 0.1))
        opened.catalogue()
        (opened.uploads / "first").rename(opened.uploads / "third")
        (opened.uploads / "second").rename(opened.uploads / "first")
        yield opened


def fill_the_disk_of(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every sync of a file in the store fail for lack of space, also in new workers."""
    synchronise = os.fsync

    def full(descriptor: int) -> None:
        if str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith(store):
            raise OSError(errno.ENOSPC, DISK_FULL)
        synchronise(descriptor)

    monkeypatch.setattr(os, "fsync", full)


def waits_by_demonstration(instance: dg.DagsterInstance) -> Counter[str]:
    """Returns the number of retries of steps by demonstration."""
    waits = Counter[str]()
    for run in instance.get_runs():
        key = run.tags.get("dagster/partition", "")
        records = instance.get_records_for_run(
            run.run_id, of_type=dg.DagsterEventType.STEP_UP_FOR_RETRY
        ).records
        waits[key] += len(records)
    return waits


def test_a_full_disk_is_waited_for_once_by_a_command(bench, monkeypatch):
    fill_the_disk_of(bench.settings.store, monkeypatch)
    home = Path(bench.instance.root_directory)
    ids = ["first", "third"]
    with closing(LocalRuns(bench.workspace, home, 1, "a command")) as runs:
        runs.prepare(ids)
        results = {result.demonstration: result for result in runs.process(ids, force=True)}
        built = runs.build_datasets(force=True)
    sentences = [results[key].problems[0].message for key in ids]
    assert sentences == [
        f"{DISK_FULL}; tried 4 times",
        f"{DISK_FULL}; this run has waited for it already, in vain",
    ]
    assert built.errors
    assert all("waited for it already, in vain" in error for error in built.errors)
    assert waits_by_demonstration(bench.instance) == {"first": 3, "third": 0, "": 0}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            StorageError(f"a.mp4: could not be written: {DISK_FULL}", trouble=DISK_FULL),
            OSError(errno.ENOSPC, DISK_FULL),
        ),
        (
            S3CallError("s3://bucket/a.mp4", "SlowDown", 503),
            S3CallError("s3://bucket/b.mp4", "SlowDown", 503),
        ),
    ],
)
def test_an_error_at_another_file_has_the_same_cause(first, second):
    assert trouble_of(first) == trouble_of(second)


def test_an_error_with_another_cause_is_waited_for():
    waits = VainWaits()
    waits.add(trouble_of(S3CallError("s3://bucket/a.mp4", "SlowDown", 503)))
    assert trouble_of(S3CallError("s3://bucket/a.mp4", "AccessDenied", 403)) not in waits
    assert trouble_of(StorageError("a: no such folder")) not in waits
    assert trouble_of(S3CallError("s3://bucket/b.mp4", "SlowDown", 503)) in waits


def trouble_of(error: Exception) -> str:
    with pytest.raises(TransientError) as raised, redacted_errors("a stage"):
        raise error
    return raised.value.trouble


def test_workers_share_lasting_errors_and_a_full_memory_keeps_them():
    waits = VainWaits()
    if (child := os.fork()) == 0:
        for number in range(500):
            waits.add(f"trouble {number}")
        os._exit(0)
    os.waitpid(child, 0)
    assert "trouble 0" in waits
    assert "trouble 100" in waits
    assert "trouble 499" not in waits
    waits.add("another")
    assert "trouble 0" in waits
