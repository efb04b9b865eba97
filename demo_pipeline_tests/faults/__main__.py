"""`make faults`: disturbs the real command line many times, and prints the faults."""

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path

from demo_pipeline_tests.faults import scenarios
from demo_pipeline_tests.faults.commands import ROOT, preload
from demo_pipeline_tests.faults.daemon import daemon_cases
from demo_pipeline_tests.faults.damage import damage_cases
from demo_pipeline_tests.faults.network import network_cases
from demo_pipeline_tests.faults.scenarios import Case, Scene, Tally

CASES = {"kills": 60, "failing": 30, "commands": 4, "daemon": 2, "damage": 11, "network": 20}
"""Kind of disturbance → number of cases.

The kinds are: kills, calls that fail, other commands at the same time, a daemon at the same time,
flipped bytes, and a store in S3 behind a bad network.
"""
AT_ONCE = 4
"""Number of cases that run at the same time.

On a machine with two cores, half of them wait for a retry or a daemon.
"""
FolderCase = Callable[[Path], Tally]
"""A case that needs nothing but a new folder."""


def main() -> int:
    """Runs the suite; returns the exit code, which is 0 if no fault was found."""
    parser = argparse.ArgumentParser(prog="demo_pipeline_tests.faults", description=__doc__)
    parser.add_argument("kinds", nargs="*", help=f"only these of: {', '.join(CASES)}")
    parser.add_argument("--times", type=int, help="so many cases of each kind, not as usual")
    chosen = parser.parse_args()
    kinds = chosen.kinds or [*CASES]
    times = dict.fromkeys(CASES, 0)
    for kind in CASES.keys() & kinds:
        times[kind] = chosen.times or CASES[kind]
    for name in list(os.environ):
        if name.startswith("DEMO_PIPELINE_"):
            del os.environ[name]
    os.environ["DEMO_PIPELINE_CONFIG"] = os.devnull
    preload()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        return _suite(Path(folder), times)


def _suite(folder: Path, times: Mapping[str, int]) -> int:
    start = time.monotonic()
    scene = scenarios.prepare(folder, ROOT / "dagster.yaml")
    print(f"one run: {scene.seconds:.1f} s, calls that change files: {scene.calls}", flush=True)
    local_cases: dict[str, Iterable[Case]] = {
        "kills": scenarios.kill_cases(scene, times["kills"]),
        "failing": scenarios.failing_cases(scene, times["failing"]),
        "commands": scenarios.company_cases(times["commands"]),
        "daemon": daemon_cases(times["daemon"]),
        "damage": damage_cases(times["damage"]),
    }
    with ExitStack() as stack:
        cases: dict[str, list[FolderCase]] = {}
        for kind, scene_cases in local_cases.items():
            cases[kind] = [partial(_run_from_start, scene, case) for case in scene_cases]
        if times["network"]:
            cases |= stack.enter_context(
                network_cases(folder, folder / "recordings", times["network"])
            )
        tallies = _run_all(folder, cases)
    _print_table(tallies)
    print(f"{time.monotonic() - start:.0f} s", flush=True)
    return 0 if all(tally.is_clean for tally in tallies.values()) else 1


def _run_from_start(scene: Scene, case: Case, folder: Path) -> Tally:
    return case(scene, scenarios.copy_start(scene.start, folder))


def _run_all(folder: Path, cases: Mapping[str, Sequence[FolderCase]]) -> dict[str, Tally]:
    """Runs each case in a forked process, `AT_ONCE` at a time.

    The order is random, so that cases that wait run at the same time as cases that compute.

    Args:
        folder: each case gets a new folder in it.
        cases: kind → cases.

    Returns:
        Kind → sum of the tallies of its cases.
    """
    waiting: list[tuple[str, int, FolderCase]] = []
    for kind, kind_cases in cases.items():
        waiting += [(kind, number, case) for number, case in enumerate(kind_cases)]
    random.Random(0).shuffle(waiting)
    running: dict[int, tuple[str, Path]] = {}
    totals = {kind: Tally() for kind in cases}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            kind, number, case = waiting.pop()
            report = folder / f"{kind}-{number}.json".replace(" ", "-")
            running[_fork(folder / report.stem, case, report)] = kind, report
        pid, _ = os.wait()
        kind, report = running.pop(pid)
        tally = Tally(**json.loads(report.read_text()))
        totals[kind] += tally
        mark = "ok" if tally.is_clean else f"FOUND {asdict(tally)}"
        print(f"{report.stem}: {tally.happened} of {tally.cases}: {mark}", flush=True)
    return totals


def _fork(folder: Path, case: FolderCase, report: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        tally = case(folder)
    except BaseException:  # noqa: BLE001 - the other cases must still run
        tally = Tally(cases=1, torn=[f"{folder.name}: {traceback.format_exc()}"])
    report.write_text(json.dumps(asdict(tally)))
    os._exit(0)


def _print_table(tallies: dict[str, Tally]) -> None:
    print("| | disturbed | bad states | re-runs that differ | stuck runs | leftovers |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, tally in tallies.items():
        problems = (tally.torn, tally.different, tally.stuck, tally.left)
        counts = " | ".join(str(len(lines)) for lines in problems)
        print(f"| {name} | {tally.happened} of {tally.cases} | {counts} |", flush=True)
        for lines in problems:
            for line in lines:
                print(line, file=sys.stderr)


if __name__ == "__main__":
    multiprocessing.freeze_support()
    sys.exit(main())
