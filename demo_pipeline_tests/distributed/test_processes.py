"""What `make ray` starts is ended, also when its parents are gone, and its CPU time is counted."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
ROOT = Path(__file__).resolve().parents[2]


def told(code: str) -> Any:
    """What the code prints last, in a process of its own: it adopts orphans for all its life."""
    start = (
        "import json, subprocess, time\nfrom demo_pipeline_tests.distributed.processes import *\n"
    )
    command = (sys.executable, "-c", f"{start}adopt_orphans()\n{code}")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout.splitlines()[-1])


def test_orphans_are_ended() -> None:
    orphans = (  # a forked child has the shell's title until it is `sleep`
        "subprocess.run(['sh', '-c', 'sleep 97 & sleep 98 &'], check=True)\n"
        "while not {'sleep 97', 'sleep 98'} <= set(map(title_of, process_states())):\n"
        "    time.sleep(0.05)\n"
    )
    shown = told(f"{orphans}print(json.dumps([end_descendants(), end_descendants()]))")
    assert [sorted(titles) for titles in shown] == [["sleep 97", "sleep 98"], []]


def test_cpu_time_is_counted_by_what_it_is_for() -> None:
    burn = "import time\nwhile time.process_time() < 1.2: pass\ntime.sleep(60)"
    code = (
        "meter = CpuMeter()\n"
        "shell = ['sh', '-c', 'python3 -c \"$1\" & wait', 'ray::worker']\n"
        f"worker = subprocess.Popen([*shell, {burn!r}])\n"
        "end = time.monotonic() + 30\n"
        "while meter.seconds()['Ray'] < 1 and time.monotonic() < end: time.sleep(0.1)\n"
        "meter.stop(); shown = dict(meter.seconds()); end_descendants(); print(json.dumps(shown))"
    )
    assert told(code)["Ray"] >= 1
