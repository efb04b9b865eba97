"""Tests a few cases of the fault suite. `make faults` runs many more."""

import subprocess
import sys

import pytest

from demo_pipeline_tests.faults.commands import ROOT


@pytest.mark.minutes  # the tests of the store already kill it at every call
def test_kills_and_a_full_disk_leave_old_or_new_and_the_next_run_finishes():
    """The cases run in a separate process, because they fork."""
    ended = subprocess.run(
        [sys.executable, "-m", "demo_pipeline_tests.faults", "kills", "failing", "--times", "2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "| failing | 2 of 2 | 0 | 0 | 0 | 0 |" in ended.stdout
