"""A fixed part of `make fuzz`: damaged input is rejected line by line and never crashes."""

import itertools
import signal
from collections import Counter
from random import Random

import pytest

from demo_pipeline_tests.actions.fuzzing import BATCH, fuzz_lines, fuzz_log, limited, quotes
from demo_pipeline_tests.simulator.mutations import good_logs, mutated_line, mutated_log

SEED = 20_000
LINES = 20_000
LOGS = 100


def test_damaged_lines_are_events_or_rejections() -> None:
    found: Counter[str] = sum((fuzz_lines(SEED, n) for n in range(LINES // BATCH)), Counter())
    assert found.total() == LINES
    every = {"invalid_json", "invalid_utf8", "wrong_type", "missing_field", "time_out_of_range"}
    assert every | {"read", "blank_line", "line_too_long", "nested_too_deeply"} <= set(found)
    assert found["read"] > LINES // 20


@pytest.mark.no_cover  # other tests run the same lines
def test_the_accounting_of_a_damaged_log_adds_up() -> None:
    found: Counter[str] = sum((fuzz_log(SEED, n) for n in range(LOGS)), Counter())
    buckets = ("action", "tree_scan", "pointer_travel", "repaired", "rejected", "other")
    assert all(found[bucket] for bucket in buckets), found


def test_a_seed_gives_the_same_damage() -> None:
    assert mutated_log(Random("x")) == mutated_log(Random("x"))
    lines = [mutated_line(Random(n)) for n in range(50)]
    assert lines == [mutated_line(Random(n)) for n in range(50)]
    assert not any(b"\n" in line for line in lines)
    assert not set(lines) & {line for log in good_logs() for line in log}


def test_a_hanging_case_is_stopped_and_named() -> None:
    before = signal.getsignal(signal.SIGPROF)
    with pytest.raises(TimeoutError, match="case 7") as caught, limited("case 7", 0.02):
        all(_ is None for _ in itertools.repeat(None))
    assert caught.value.__notes__ == ["while reading case 7"]
    assert signal.getsignal(signal.SIGPROF) is before
    assert signal.getitimer(signal.ITIMER_PROF)[0] == 0


def test_a_message_that_repeats_the_line_is_noticed() -> None:
    line = b'{"event":"keydown","data":{"key":"what somebody typed here, in full length"}}'
    assert quotes("unexpected what somebody typed here, in full", line)
    assert not quotes("line does not fit the format", line)
