"""`make faults`: disturbs the real command line many times, and prints the faults."""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from demo_pipeline_tests.faults import scenarios
from demo_pipeline_tests.faults.commands import ROOT, preload
from demo_pipeline_tests.faults.daemon import daemon_cases
from demo_pipeline_tests.faults.damage import damage_cases
from demo_pipeline_tests.faults.network import network_tallies
from demo_pipeline_tests.faults.scenarios import Case, Scene, Tally

CASES = {"kills": 60, "failing": 30, "commands": 4, "daemon": 2, "damage": 11, "network": 20}
"""Kind of disturbance → number of cases.

The kinds are: kills, calls that fail, other commands at the same time, a daemon at the same time,
flipped bytes, and a store in S3 behind a bad network.
"""
AT_ONCE = 2


def main() -> int:
    """Runs the suite; returns the exit code, which is 0 if no fault was found."""
    parser = argparse.ArgumentParser(prog="demo_pipeline_tests.faults", description=__doc__)
    parser.add_argument("kinds", nargs="*", help=f"only these of: {', '.join(CASES)}")
    parser.add_argument("--times", type=int, help="so many cases of each kind, not as usual")
    chosen = parser.parse_args()
    kinds = chosen.kinds or [*CASES]
    times = {name: chosen.times or CASES[name] if name in kinds else 0 for name in CASES}
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
    cases: dict[str, Iterable[Case]] = {
        "kills": scenarios.kill_cases(scene, times["kills"]),
        "failing": scenarios.failing_cases(scene, times["failing"]),
        "commands": scenarios.company_cases(times["commands"]),
        "daemon": daemon_cases(times["daemon"]),
        "damage": damage_cases(times["damage"]),
    }
    tallies = {name: _run_all(scene, folder, name, some) for name, some in cases.items()}
    if times["network"]:
        tallies |= network_tallies(folder, folder / "recordings", times["network"])
    _print_table(tallies)
    print(f"{time.monotonic() - start:.0f} s", flush=True)
    return 0 if all(tally.is_clean for tally in tallies.values()) else 1


def _run_all(scene: Scene, folder: Path, name: str, cases: Iterable[Case]) -> Tally:
    """Runs each case in a forked process, `AT_ONCE` at a time; returns the sum of the tallies."""
    waiting = list(enumerate(cases))
    running: dict[int, Path] = {}
    total = Tally()
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            number, case = waiting.pop(0)
            report = folder / f"{name}-{number}.json"
            running[_fork(scene, folder / report.stem, case, report)] = report
        pid, _ = os.wait()
        report = running.pop(pid)
        tally = Tally(**json.loads(report.read_text()))
        total += tally
        mark = "ok" if tally.is_clean else f"FOUND {asdict(tally)}"
        print(f"{report.stem}: {tally.happened} of {tally.cases}: {mark}", flush=True)
    return total


def _fork(scene: Scene, folder: Path, case: Case, report: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        tally = case(scene, scenarios.copy_start(scene.start, folder))
    except BaseException:  # noqa: BLE001 - the other cases must still run
        tally = Tally(cases=1, torn=[f"{folder.name}: {traceback.format_exc()}"])
    report.write_text(json.dumps(asdict(tally)))
    os._exit(0)


def _print_table(tallies: dict[str, Tally]) -> None:
    print("| | disturbed | bad states | re-runs that differ | stuck runs | leftovers |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, tally in tallies.items():
        found = (tally.torn, tally.different, tally.stuck, tally.left)
        counts = " | ".join(str(len(lines)) for lines in found)
        print(f"| {name} | {tally.happened} of {tally.cases} | {counts} |", flush=True)
        for lines in found:
            for line in lines:
                print(line, file=sys.stderr)


if __name__ == "__main__":
    multiprocessing.freeze_support()
    sys.exit(main())
