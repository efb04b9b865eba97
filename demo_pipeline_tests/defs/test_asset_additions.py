"""The quarantine table in the UI, and the check that every upload is accounted for."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from demo_pipeline.defs.dataset_assets import ACCOUNTED
from demo_pipeline.runs.quarantine_table import QUARANTINE_SCHEMA, TABLE_FILE
from demo_pipeline_tests.defs.bench import (
    Bench,
    Result,
    bench,
    cancel,
    launched,
    materialized,
    ticked,
    values,
    verdicts,
)
from demo_pipeline_tests.uploads import spoil_log, tear_meta, upload

pytestmark = pytest.mark.no_cover  # other tests run the same lines


@pytest.fixture
def made(tmp_path: Path, recording: Path) -> Iterator[Bench]:
    with bench(tmp_path) as one:
        for name in ("bad", "good", "torn"):
            upload(recording, one.uploads, name)
        spoil_log(one.uploads / "bad")
        tear_meta(one.uploads / "torn")
        yield one


def arrive(made: Bench) -> None:
    """Evaluate the sensor and launch its requests until there are none."""
    made.catalogue()
    for _ in range(4):
        for request in ticked(made, "new_uploads").requests:
            launched(made, request)


def shown(result: Result) -> dict[str, Any]:
    return values(materialized(result)["quarantine", None])


def rows(made: Bench) -> list[dict[str, Any]]:
    folder = made.workspace.store.open("quarantine_table")[0]
    table = pq.read_table(folder / TABLE_FILE)
    assert table.schema.equals(QUARANTINE_SCHEMA)
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def test_the_ui_shows_the_quarantined_demonstrations_reasons_and_remedies(made: Bench) -> None:
    arrive(made)
    result = made.run("report_quarantine")
    told = shown(result)
    assert told["quarantined"] == 2
    assert told["by_stage"] == {"events": 1, "raw_recordings": 1}
    assert next((row["demonstration"], row["line"], row["byte"]) for row in rows(made)) == (
        "bad",
        1,
        0,
    )
    assert all(row["remedy"] and row["message"] and row["fingerprint"] for row in rows(made))


def test_incomplete_and_deleted_uploads_are_accounted_for(made: Bench) -> None:
    arrive(made)
    (made.uploads / "half").mkdir()
    (made.uploads / "half" / "meta.json").write_text("{}")
    shutil.rmtree(made.uploads / "good")
    for _ in range(6):
        ticked(made, "new_uploads")
    result = made.run("report_quarantine")
    assert verdicts(result)[ACCOUNTED].passed
    assert shown(result)["uploads"] == {
        "listed": 4,
        "accepted": 0,
        "quarantined": 2,
        "pending": 1,
        "gone": 1,
    }


def test_an_unknown_upload_fails_the_check_and_is_named(made: Bench) -> None:
    result = made.run("report_quarantine")
    assert result.success
    verdict = verdicts(result)[ACCOUNTED]
    assert not verdict.passed
    assert verdict.severity.value == "WARN"
    assert "bad" in (verdict.description or "")
    assert "new_uploads" in json.dumps(
        {key: str(one.value) for key, one in verdict.metadata.items()}
    )


def test_a_recent_upload_is_pending(made: Bench, recording: Path) -> None:
    arrive(made)
    upload(recording, made.uploads, "late")
    result = made.run("report_quarantine")
    assert verdicts(result)[ACCOUNTED].passed
    assert shown(result)["uploads"]["pending"] == 1
    assert shown(result)["uploads"]["listed"] == 4


def test_a_run_that_was_cancelled_too_often_is_named(made: Bench) -> None:
    arrive(made)
    for name in ("bad", "torn"):
        shutil.rmtree(made.uploads / name)
    meta = made.uploads / "good" / "meta.json"
    meta.write_text(meta.read_text() + " ")
    cancelled = 0
    while requests := [one for _ in range(4) for one in ticked(made, "new_uploads").requests]:
        cancel(made, requests[0])
        cancelled += 1
        assert cancelled <= 3
    assert cancelled == 3
    result = made.run("report_quarantine")
    verdict = verdicts(result)[ACCOUNTED]
    assert not verdict.passed
    assert "good" in (verdict.description or "")
    assert shown(result)["uploads"]["accepted"] == 0


def test_a_corrected_upload_leaves_the_table(made: Bench, recording: Path) -> None:
    arrive(made)
    for name in ("bad", "torn"):
        shutil.rmtree(made.uploads / name)
        upload(recording, made.uploads, name)
    arrive(made)
    result = made.run("report_quarantine")
    assert shown(result)["quarantined"] == 0
    assert rows(made) == []
    assert shown(result)["uploads"]["accepted"] == 3
    assert verdicts(result)[ACCOUNTED].passed
    version = made.workspace.store.current("quarantine_table")
    assert shown(made.run("report_quarantine"))["outcome"] == "unchanged"
    assert made.workspace.store.current("quarantine_table") == version


def test_missing_uploads_fail_the_run_after_the_table_is_written(made: Bench) -> None:
    arrive(made)
    shutil.rmtree(made.uploads)
    result = made.run("report_quarantine")
    assert not result.success
    assert len(rows(made)) >= 2
