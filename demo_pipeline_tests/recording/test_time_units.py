"""Tests of logs with other units of time, and of logs from another day than meta.json says."""

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.recording.events import (
    build_events,
    check_recording_time,
    check_time_unit,
    read_events,
    read_scans,
    rejected_lines,
)
from demo_pipeline.recording.input_log import DAY_MS, find_time_scale

START_MS = 1_741_119_497_902
PER_MS = {"seconds": 1e-3, "milliseconds": 1, "microseconds": 10**3, "nanoseconds": 10**6}


def log_of(times: list[Any], **data: Any) -> bytes:
    lines = [{"event": "mousemove", "data": {"x": 1, "y": 2, **data}, "time": t} for t in times]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def built(folder: Path, log: bytes) -> dict[str, Any]:
    (folder / "input_log.jsonl").write_bytes(log)
    return build_events(folder / "input_log.jsonl", folder)


@pytest.mark.parametrize("unit", PER_MS)
def test_times_are_recovered_by_their_magnitude(tmp_path, unit):
    expected = [START_MS, START_MS + 7, START_MS + 1234]
    times = [ms * PER_MS[unit] for ms in expected]
    summary = built(tmp_path, log_of(times))
    assert read_events(tmp_path)["time_ms"].to_pylist() == expected
    assert summary["time_unit"] == unit
    warnings = [str(problem) for problem in check_time_unit(tmp_path / "input_log.jsonl")]
    assert summary["warnings"] == warnings
    assert len(warnings) == (unit != "milliseconds")
    assert all(unit in warning and "write `time`" in warning for warning in warnings)


@pytest.mark.parametrize("event", ["mousemove", "ffmpeg_stderr"])
def test_every_kind_of_event_is_converted(tmp_path, event):
    line = {"event": event, "data": {"x": 1, "y": 2, "output": "start: 0"}, "time": START_MS / 1000}
    built(tmp_path, json.dumps(line).encode())
    assert read_events(tmp_path)["time_ms"].to_pylist() == [START_MS]


def test_most_lines_decide_for_the_whole_log(tmp_path):
    seconds = START_MS / 1000
    built(tmp_path, b"{torn\n" + log_of([START_MS, seconds, seconds + 1, seconds + 2, 0]))
    events = read_events(tmp_path)
    assert events["time_ms"].to_pylist() == [START_MS, START_MS + 1000, START_MS + 2000]
    one_stray = log_of([START_MS, START_MS + 1, seconds])
    built(tmp_path, one_stray)
    assert read_events(tmp_path)["time_ms"].to_pylist() == [START_MS, START_MS + 1]


def test_small_and_documented_times_are_milliseconds():
    for times in ([0, 5, 9], [1234567890] * 3, []):
        assert find_time_scale(io.BytesIO(log_of(times))).unit.name == "milliseconds"


@pytest.mark.parametrize(
    ("unit", "duration", "expected"),
    [
        ("milliseconds", 350, 350),
        ("seconds", 0.35, 350),
        ("microseconds", 350_000, 350),
        ("microseconds", 350, 350),
        ("nanoseconds", 350_000_000, 350),
    ],
)
def test_the_duration_of_a_scan_is_in_the_unit_of_the_log(tmp_path, unit, duration, expected):
    scan = {"event": "axtree", "data": {"duration": duration}, "time": START_MS * PER_MS[unit]}
    built(tmp_path, json.dumps(scan).encode())
    assert [row["duration_ms"] for row in read_scans(tmp_path)] == [expected]


@pytest.mark.parametrize(("hours", "count"), [(0, 0), (-23, 0), (23, 0), (-24, 1), (25, 1)])
def test_a_log_of_another_day_is_one_clear_problem(tmp_path, hours, count):
    built(tmp_path, log_of([START_MS + n for n in range(9)]))
    recorded = datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(hours=hours, seconds=-1)
    problems = check_recording_time(tmp_path, recorded)
    assert len(problems) == count
    for problem in problems:
        assert problem.code == "log_not_of_this_recording"
        assert "2025-03-04 20:18 UTC" in problem.message
        assert f"meta.timestamp is {recorded:%Y-%m-%d %H:%M} UTC" in problem.message
        assert problem.remedy


def test_single_lines_with_a_wrong_time_are_no_log_of_another_day(tmp_path):
    built(tmp_path, log_of([0, START_MS, START_MS + 1]))
    recorded = datetime.fromtimestamp(START_MS / 1000, UTC)
    assert check_recording_time(tmp_path, recorded) == []
    built(tmp_path, b"")
    assert check_recording_time(tmp_path, recorded) == []


@pytest.mark.parametrize("unit", PER_MS)
@pytest.mark.parametrize("event", ["keydown", "axtree", "ffmpeg_stderr"])
@pytest.mark.parametrize("far_ms", [-START_MS, 812 - START_MS, -DAY_MS - 10_000, DAY_MS + 10_000])
def test_a_time_far_from_the_others_costs_its_line_only(tmp_path, unit, event, far_ms):
    near = [0, 7, 1234, DAY_MS - 5_000, 9_000]
    times = [(START_MS + ms) * PER_MS[unit] for ms in near]
    far = {"event": event, "data": {"key": "KeyA"}, "time": (START_MS + far_ms) * PER_MS[unit]}
    summary = built(tmp_path, json.dumps(far).encode() + b"\n" + log_of(times))
    assert read_events(tmp_path)["time_ms"].to_pylist() == [START_MS + ms for ms in near]
    [rejected] = rejected_lines(tmp_path)
    assert (rejected.code, rejected.line) == ("time_out_of_range", 1)
    assert "a day from the median" in rejected.message
    assert summary["rejected_by_reason"] == {"time_out_of_range": 1}


def test_the_median_of_a_long_log_is_that_of_its_lines(tmp_path):
    """The median is computed from every n-th line, because the beginning may be damaged."""
    damaged = 60_000
    lines = 200_000
    times = [812] * damaged + [START_MS + n for n in range(lines - damaged)]
    scale = find_time_scale(io.BytesIO(log_of(times)))
    assert scale.median_ms == pytest.approx(sorted(times)[lines // 2], abs=10)
    built(tmp_path, log_of(times[::100]))
    assert read_events(tmp_path).num_rows == (lines - damaged) / 100


def test_without_a_plausible_median_no_line_is_far_from_it(tmp_path):
    """The examples of the format document mix times of 1970 and of 2025."""
    times = [1_234_567_890] * 3 + [START_MS]
    assert built(tmp_path, log_of(times))["rejected_lines"] == 0
    assert check_recording_time(tmp_path, datetime.fromtimestamp(START_MS / 1000, UTC))


def test_times_since_the_recording_began_count_from_its_time_stamp(tmp_path):
    """Negative times lie before the start of the recording. An epoch time stays unchanged."""
    (tmp_path / "input_log.jsonl").write_bytes(log_of([-3, 0, 194, START_MS + 250, 90_000]))
    recorded = datetime.fromtimestamp(START_MS / 1000, UTC)
    summary = build_events(tmp_path / "input_log.jsonl", tmp_path, recorded_at=recorded)
    times = [START_MS + ms for ms in (-3, 0, 194, 250, 90_000)]
    assert read_events(tmp_path)["time_ms"].to_pylist() == times
    assert check_recording_time(tmp_path, recorded) == []
    assert (summary["times_from"], summary["warnings"]) == ("meta.timestamp", [])


@pytest.mark.parametrize("unit", PER_MS)
def test_an_integer_of_400_digits_costs_its_line_only(tmp_path, unit):
    times = [START_MS * PER_MS[unit], 10**400, -(10**400), (START_MS + 1) * PER_MS[unit]]
    summary = built(tmp_path, log_of(times))
    assert read_events(tmp_path)["time_ms"].to_pylist() == [START_MS, START_MS + 1]
    assert summary["time_unit"] == unit
