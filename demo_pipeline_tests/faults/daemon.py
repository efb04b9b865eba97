"""Cases in which the daemon and the command line work at the same time.

Both use the same Dagster home and the same store.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial

import dagster as dg

from demo_pipeline_tests.defs.daemon import LOG, dagster_process, runs_of, wait_for
from demo_pipeline_tests.faults.commands import PATIENCE, Place, run_command
from demo_pipeline_tests.faults.scenarios import (
    RUN_ALL,
    Case,
    Scene,
    Tally,
    examine,
    finish,
    workspace_of,
)
from demo_pipeline_tests.faults.states import differing, shown_tracebacks

DAEMON = ("dagster-daemon", "run", "-w", "workspace.yaml")
QUICK_DISCOVERY = {
    "DEMO_PIPELINE_DISCOVERY__STABLE_SECONDS": "0",
    "DEMO_PIPELINE_DISCOVERY__INTERVAL_SECONDS": "2",
}
"""Settings that make a daemon look for uploads every 2 s."""
_QUIET = 8.0  # seconds without an unfinished run, after which no sensor will start one


def daemon_cases(count: int) -> Iterator[Case]:
    """Yields `count` cases.

    When the command `run` begins, the daemon's run has started in one case and is queued in the
    next, in turn.
    """
    for number in range(count):
        yield partial(beside_daemon, at_work=number % 2 == 0)


def beside_daemon(scene: Scene, place: Place, *, at_work: bool) -> Tally:
    """Calls `demo-pipeline run` while the daemon has a run.

    Args:
        scene: the starting point of all cases.
        place: the folder of this case.
        at_work: whether the daemon's run must have started; otherwise a requested run is enough.
    """
    tally = Tally(cases=1)
    home = place.folder / "home"
    environment = {**place.environment, **QUICK_DISCOVERY}
    with dg.DagsterInstance.from_config(str(home)) as instance:
        before = {run.id for run in runs_of(instance)}
        with dagster_process(DAEMON, home, environment) as daemon:

            def has_work() -> bool:
                new = [run for run in runs_of(instance) if run.id not in before and run.key]
                if at_work:
                    return any(run.started and not run.ended for run in new)
                return bool(new)

            wait_for(daemon, has_work, "a run of the daemon", PATIENCE)
            tally.happened += 1
            ended = run_command(place, *RUN_ALL)
            wait_for(daemon, _drained(scene, place, instance), "the end of all runs", PATIENCE)
            # Read the log before the daemon is stopped: a sensor that is stopped logs an error,
            # because it does not find its code location any more.
            log = (home / LOG).read_text(encoding="utf-8", errors="replace")
    if ended.code != 0:
        tally.torn.append(f"{place.folder.name}: exit code {ended.code}: {ended.output[-800:]}")
    examine(scene, place, tally, ended)
    tally.torn += [f"{place.folder.name}, daemon: {line}" for line in shown_tracebacks(log)]
    finish(scene, place, tally)
    return tally


def _drained(scene: Scene, place: Place, instance: dg.DagsterInstance) -> Callable[[], bool]:
    """Returns a function that returns whether the daemon is done.

    The daemon is done if all outputs are built, and no run was unfinished for some seconds. Without
    this delay, the daemon might still start a run.
    """
    workspace = workspace_of(place)
    open_at = [time.monotonic()]

    def drained() -> bool:
        ended = all(run.ended for run in runs_of(instance))
        if not ended or differing(workspace, scene.after):
            open_at[0] = time.monotonic()
        return time.monotonic() - open_at[0] > _QUIET

    return drained
