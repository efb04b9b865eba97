"""`make faults`: disturb the real command line many times, and print what was found."""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from demo_pipeline_tests.faults import scenarios
from demo_pipeline_tests.faults.commands import ROOT, preload
from demo_pipeline_tests.faults.daemon import daemon_cases
from demo_pipeline_tests.faults.network import network_tallies
from demo_pipeline_tests.faults.scenarios import Case, Scene, Tally


def main() -> int:
    """Run the suite; the exit code is 0 when nothing was found."""
    parser = argparse.ArgumentParser(prog="demo_pipeline_tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--chain", type=int, default=4, help="kills before an undisturbed run")
    parser.add_argument("--failing", type=int, default=50, help="runs with failing calls")
    parser.add_argument("--clock", type=int, default=6, help="runs with jumps of the clock")
    parser.add_argument("--company", type=int, default=4, help="runs with other commands")
    parser.add_argument("--daemon", type=int, default=2, help="runs beside the daemon")
    parser.add_argument("--network", type=int, default=8, help="plans of faults before S3")
    parser.add_argument("--s3-kills", type=int, default=50, help="kills at requests to S3")
    parser.add_argument("--jobs", type=int, default=2, help="cases at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spawn", action="store_true", help="last runs in processes of their own")
    arguments = parser.parse_args()
    for name in list(os.environ):
        if name.startswith("DEMO_PIPELINE_"):
            del os.environ[name]
    os.environ["DEMO_PIPELINE_CONFIG"] = os.devnull
    preload()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        return _suite(Path(folder), arguments)


def _suite(folder: Path, chosen: argparse.Namespace) -> int:
    start = time.monotonic()
    scene = scenarios.prepare(folder, ROOT / "dagster.yaml")
    print(f"one run: {scene.seconds:.1f} s, calls that change files: {scene.calls}", flush=True)
    seed = chosen.seed
    kinds: dict[str, Iterable[Case]] = {
        "kills": scenarios.kill_cases(scene, chosen.kills, chosen.chain, seed, spawn=chosen.spawn),
        "failing calls": scenarios.failing_cases(scene, chosen.failing, seed),
        "clock jumps": scenarios.clock_cases(scene, chosen.clock, seed),
        "several commands": scenarios.company_cases(chosen.company),
        "command and daemon": daemon_cases(chosen.daemon),
    }
    tallies = {
        name: _run_all(scene, folder, name, cases, chosen.jobs) for name, cases in kinds.items()
    }
    if chosen.network or chosen.s3_kills:
        recordings, plans = folder / "recordings", chosen.network
        tallies |= network_tallies(folder, recordings, plans, chosen.s3_kills, seed)
    _print_table(tallies)
    print(f"{time.monotonic() - start:.0f} s", flush=True)
    return 0 if all(tally.is_clean for tally in tallies.values()) else 1


def _run_all(scene: Scene, folder: Path, name: str, cases: Iterable[Case], jobs: int) -> Tally:
    """Every case in a forked process of its own, some at once."""
    waiting = list(enumerate(cases))
    running: dict[int, Path] = {}
    total = Tally()
    while waiting or running:
        while waiting and len(running) < jobs:
            number, case = waiting.pop(0)
            report = folder / f"{name.replace(' ', '-')}-{number}.json"
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
    except BaseException:  # noqa: BLE001 - the other cases go on
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
