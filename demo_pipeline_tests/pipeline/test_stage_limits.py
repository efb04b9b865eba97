"""A stage that uses too much memory or CPU time is stopped, and its process lives on if it can."""

import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.files.processes import resident_bytes
from demo_pipeline.pipeline.quarantine import read_quarantine
from demo_pipeline.pipeline.runner import run_stage
from demo_pipeline.pipeline.stage_limits import (
    EXCEEDED_EXIT,
    EarlierAttempts,
    ExceededLimitError,
    StageLimit,
    within_limit,
)
from demo_pipeline.pipeline.stages import STAGE_BY_NAME
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.settings import LimitSettings
from demo_pipeline.stage import Summary
from demo_pipeline_tests.sample_workspace import copy_of, open_workspace

MB = 2**20
PLENTY = 2**45


def no_note(_reason: str) -> None:
    raise AssertionError("the stage could be stopped")


def above_now(megabytes: int) -> int:
    memory = resident_bytes()
    assert memory is not None
    return memory + megabytes * MB


def fill(megabytes: int) -> list[bytes]:
    """Memory that is really used, in small pieces."""
    return [b"x" * MB for _ in range(megabytes)]


def compute(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


class TestStopping:
    def test_memory(self) -> None:
        with (
            pytest.raises(ExceededLimitError, match=r"more than .* GB of memory"),
            within_limit(StageLimit(above_now(100), 60), no_note),
        ):
            compute(len(fill(3_000)))

    def test_cpu_time(self) -> None:
        start = time.process_time()
        with (
            pytest.raises(ExceededLimitError, match=r"more than 0\.3 s of CPU time"),
            within_limit(StageLimit(PLENTY, 0.3), no_note),
        ):
            compute(60)
        assert time.process_time() - start < 5

    def test_a_stage_that_catches_every_exception(self) -> None:
        def stubborn() -> None:
            end = time.process_time() + 60
            while time.process_time() < end:
                with suppress(Exception):  # the careless code that is meant
                    compute(0.5)

        with (
            pytest.raises(ExceededLimitError),
            within_limit(StageLimit(PLENTY, 0.3), no_note),
        ):
            stubborn()

    def test_what_stays_below_is_not_disturbed(self) -> None:
        for _ in range(20):
            with within_limit(StageLimit(PLENTY, 0.05), no_note):
                compute(0.02)
        compute(0.3)

    def test_too_little_memory_on_the_machine_is_not_the_stage(self) -> None:
        def fail() -> None:
            raise MemoryError

        with pytest.raises(MemoryError), within_limit(StageLimit(PLENTY, 60), no_note):
            fail()


PROGRAM = """
import hashlib, re
from demo_pipeline.pipeline import stage_limits
stage_limits._PATIENCE = 2.0
def work():
    {work}
with stage_limits.within_limit(stage_limits.StageLimit(2**45, 0.2), print):
    work()
"""
LONG_IN_C = 'hashlib.pbkdf2_hmac("sha256", b"a", b"b", 10**9)'  # other threads run meanwhile
ALONE_IN_C = 're.match("(a+)+$", "a" * 60 + "b")'  # no other thread runs


@pytest.mark.parametrize(
    ("work", "code", "output"),
    [
        (LONG_IN_C, EXCEEDED_EXIT, "needs more than 0.2 s of CPU time (limits.cpu_seconds)"),
        (ALONE_IN_C, -signal.SIGXCPU, ""),
    ],
    ids=["others run", "no other runs"],
)
def test_what_cannot_be_stopped_is_ended_with_its_process(
    work: str, code: int, output: str
) -> None:
    program = [sys.executable, "-u", "-c", PROGRAM.format(work=work)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (code, output), ended.stderr


def test_the_cpu_time_grows_with_the_video_and_the_actions() -> None:
    limits = LimitSettings(
        max_memory_bytes=2**30,
        cpu_seconds=10,
        cpu_seconds_per_video_second=2,
        cpu_seconds_per_action=3,
    )
    assert StageLimit.of(limits, 0, 0) == StageLimit(2**30, 10)
    assert StageLimit.of(limits, 5, 7) == StageLimit(2**30, 10 + 10 + 21)


class TestTheDemonstration:
    @pytest.fixture
    def made(self, tmp_path: Path, made_root: Path):
        root = copy_of(made_root, tmp_path / "root")
        limits = LimitSettings(
            cpu_seconds=0.2, cpu_seconds_per_video_second=0, cpu_seconds_per_action=0
        )
        return open_workspace(root, limits=limits)

    def test_a_first_excess_is_not_its_fault(self, made) -> None:
        with pytest.raises(ExceededLimitError, match=r"^events needs more than 0\.2 s of CPU"):
            run_stage(made, slow(), "first", force=True)
        assert read_quarantine(made.store, "first") is None
        assert made.store.verify("events/first") == []

    def test_a_second_one_is(self, made) -> None:
        earlier = EarlierAttempts(exceeded=lambda: True)
        with pytest.raises(DemonstrationError):
            run_stage(made, slow(), "first", force=True, earlier=earlier)
        record = read_quarantine(made.store, "first")
        assert record is not None
        [problem] = record.problems
        assert (record.stage, problem["code"]) == ("events", "too_expensive")
        assert str(problem["message"]).endswith("(limits.cpu_seconds), also alone in a process")
        assert "--retry" in str(problem["remedy"])

    def test_the_checks_are_limited_too(self, made) -> None:
        def endless(_context: Any, _out: Path) -> list[Problem]:
            compute(60)
            return []

        events = STAGE_BY_NAME["events"]
        check = replace(events.checks[0], run=endless)
        with pytest.raises(ExceededLimitError):
            run_stage(made, replace(events, checks=(check,)), "first", force=True)


def slow():
    """The stage `events`, which does not end."""

    def build(_context: RecordingInputs, _out: Path) -> Summary:
        compute(60)
        return {}

    return replace(STAGE_BY_NAME["events"], build=build)
