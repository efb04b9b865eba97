"""Tests at which times the screen showed text that was typed and later erased."""

from pathlib import Path

import pyarrow as pa

from demo_pipeline.actions.action_tables import ACCOUNTING_FILE, ACCOUNTING_SCHEMA
from demo_pipeline.actions.build_actions import TYPED_AND_ERASED, erased_typing
from demo_pipeline.files.parquet import rows_table, write_table


def stretches(folder: Path, *buckets: str) -> list[tuple[int, int]]:
    """Returns the time spans of erased texts in a log with an event every 100 ms.

    `buckets` contains the accounting bucket of each event, or `-` if the event typed erased text.
    """
    rows: list[tuple[int, str, int | None, str]] = []
    for line, bucket in enumerate(buckets, start=1):
        if bucket == "-":
            rows.append((line, "repaired", None, TYPED_AND_ERASED))
        else:
            rows.append((line, bucket, 0 if bucket == "action" else None, ""))
    table = rows_table(list(zip(*rows, strict=True)), ACCOUNTING_SCHEMA)
    write_table(folder / ACCOUNTING_FILE, table)
    lines = list(range(1, len(buckets) + 1))
    events = pa.table({"event_index": lines, "time_ms": [100 * line for line in lines]})
    return erased_typing(folder, events)


def test_erased_typing_lasts_from_its_first_key_to_its_last(tmp_path: Path) -> None:
    assert stretches(tmp_path, "action", "-", "-", "pointer_travel", "-") == [(200, 500)]


def test_an_action_separates_two_erased_texts(tmp_path: Path) -> None:
    assert stretches(tmp_path, "-", "-", "action", "-", "-") == [(100, 200), (400, 500)]


def test_a_log_without_erased_text_has_none(tmp_path: Path) -> None:
    assert stretches(tmp_path, "action", "tree_scan") == []
