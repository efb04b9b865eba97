"""Tests the job that reprocesses outdated demonstrations if one of them cannot be read."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.defs import maintenance
from demo_pipeline.store.errors import StorageError
from demo_pipeline_tests.defs.bench import Bench, open_bench


@pytest.fixture
def bench(tmp_path: Path, made_root: Path) -> Iterator[Bench]:
    with open_bench(tmp_path, source=made_root) as opened:
        yield opened


def test_other_demonstrations_are_reprocessed_and_the_run_fails_with_the_reason(bench, monkeypatch):
    processed: list[str] = []

    def is_outdated(_: Any, demonstration: str) -> bool:
        if demonstration == "first":
            raise StorageError("first: the server does not answer")
        return True

    def process_ids(_context: Any, _workspace: Any, ids: Sequence[str]) -> None:
        processed.extend(ids)

    monkeypatch.setattr(maintenance, "is_outdated", is_outdated)
    monkeypatch.setattr(maintenance, "process_ids", process_ids)
    result = bench.run("reprocess_changed")
    assert processed == ["second"]
    assert not result.success
    [event] = result.get_step_failure_events()
    failure = event.step_failure_data.user_failure_data
    assert failure is not None
    assert failure.description == (
        "1 demonstration skipped: first: first: the server does not answer"
    )
