"""A few cases of the fault suite; `make faults` has the many."""

import subprocess
import sys

import pytest

from demo_pipeline_tests.faults.commands import ROOT


@pytest.mark.minutes  # tests of the store kill it at every call
def test_kills_and_a_full_disk_leave_old_or_new_and_the_next_run_finishes() -> None:
    """A process of its own, since it forks."""
    few = ["--kills", "2", "--chain", "2", "--failing", "1"]
    none = ["--clock", "0", "--company", "0", "--daemon", "0", "--network", "0", "--s3-kills", "0"]
    ended = subprocess.run(
        [sys.executable, "-m", "demo_pipeline_tests.faults", *few, *none, "--jobs", "2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "| failing calls | 1 of 1 | 0 | 0 | 0 | 0 |" in ended.stdout
