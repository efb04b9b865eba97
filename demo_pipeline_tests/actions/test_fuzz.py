"""A fixed subset of `make fuzz`: damaged lines are rejected one by one, and nothing crashes."""

from collections import Counter

from demo_pipeline_tests.actions.fuzzing import BATCH, fuzz_lines, fuzz_log

SEED = 20_000
LINES = 20_000
LOGS = 50


def test_damaged_lines_are_events_or_rejections():
    faults: Counter[str] = sum((fuzz_lines(SEED, n) for n in range(LINES // BATCH)), Counter())
    assert faults.total() == LINES
    every = {"invalid_json", "invalid_utf8", "wrong_type", "missing_field", "time_out_of_range"}
    assert every | {"read", "blank_line", "line_too_long", "nested_too_deeply"} <= set(faults)
    assert faults["read"] > LINES // 20


def test_the_accounting_of_a_damaged_log_adds_up():
    faults: Counter[str] = sum((fuzz_log(SEED, n) for n in range(LOGS)), Counter())
    buckets = ("action", "tree_scan", "pointer_travel", "repaired", "rejected", "other")
    assert all(faults[bucket] for bucket in buckets), faults
