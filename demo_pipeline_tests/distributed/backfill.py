"""Launches a backfill over all demonstrations, watches its runs, and kills two of their processes.

The process of a run is found by its command line, which contains the id of the run.
"""

import json
import os
import signal
import subprocess
import sysconfig
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.storage.tags import BACKFILL_ID_TAG, PARENT_RUN_ID_TAG

from demo_pipeline.cli.console import print_line
from demo_pipeline.defs.dataset_assets import built_from_event, newest_records_event
from demo_pipeline.defs.partitions import PARTITION_TAG, UNFINISHED
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE
from demo_pipeline_tests.defs.daemon import ROOT
from demo_pipeline_tests.distributed.processes import process_states, title_of

KILLS = ("a Ray worker", "the process of a run")
_MUTATION = """
mutation ($backfillParams: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $backfillParams) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}
"""
_CANCEL = """
mutation ($id: String!) {
  cancelPartitionBackfill(backfillId: $id) { __typename ... on PythonError { message } }
}
"""
_REPORT_SECONDS = 15.0
_ENDED = {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED}


@dataclass(frozen=True)
class Kill:
    """A process that was killed while it executed a run.

    Attributes:
        kind: an item of `KILLS`.
        run_id: id of the run.
        at: time of the kill, epoch seconds.
    """

    kind: str
    run_id: str
    at: float


@dataclass
class Backfill:
    """A launched backfill.

    Attributes:
        expected: number of demonstrations of the backfill.
        kills: the processes that were killed so far.
    """

    instance: dg.DagsterInstance
    workspace: Workspace
    id: str
    expected: int
    kills: list[Kill] = field(default_factory=list)
    _reported: float = 0.0

    def runs(self) -> Sequence[dg.RunRecord]:
        """Returns the runs, including retries of Dagster, oldest request first."""
        filters = dg.RunsFilter(tags={BACKFILL_ID_TAG: self.id})
        return self.instance.get_run_records(filters, ascending=True)

    def step(self) -> bool:
        """Kills the next process if it is time, and returns whether everything is built."""
        done = len(self.workspace.store.outputs(TRAJECTORIES_STAGE.folder))
        runs = self.runs()
        self._report(done, runs)
        if len(self.kills) < len(KILLS) and done * 4 >= self.expected * len(self.kills):
            self._kill(KILLS[len(self.kills)], runs)
        backfill = self.instance.get_backfill(self.id)
        newest = newest_records_event(self.instance)
        finished = backfill is not None and backfill.status.value.startswith(("COMPLETED", "FAIL"))
        built = 0 < newest <= built_from_event(self.instance, self.workspace.settings)
        built = built and not self.instance.get_runs_count(dg.RunsFilter(statuses=UNFINISHED))
        return finished and built and all(run.dagster_run.status in _ENDED for run in runs)

    def retry_of(self, kill: Kill) -> dg.RunRecord | None:
        """Returns the run that Dagster launched instead of a killed run, or None."""
        for record in self.runs():
            if record.dagster_run.tags.get(PARENT_RUN_ID_TAG) == kill.run_id:
                return record
        return None

    def _report(self, done: int, runs: Sequence[dg.RunRecord]) -> None:
        if time.monotonic() - self._reported >= _REPORT_SECONDS:
            self._reported = time.monotonic()
            ended = sum(run.dagster_run.status in _ENDED for run in runs)
            print_line(f"  {done} of {self.expected} trajectories, {ended} of {len(runs)} runs")

    def _kill(self, kind: str, runs: Sequence[dg.RunRecord]) -> None:
        """Kills a process of the first run that has written some of its outputs, but not all."""
        for record in runs:
            run = record.dagster_run
            pid = run_process(run.run_id)
            if run.status is not dg.DagsterRunStatus.STARTED or pid is None:
                continue
            if not self._is_midway(run):
                continue
            pid = pid if kind == KILLS[1] else ray_worker_of(pid)
            if pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.kills.append(Kill(kind, run.run_id, time.time()))
                    print_line(f"  killed {kind}, which had run {run.run_id[:8]}")
                return

    def _is_midway(self, run: dg.DagsterRun) -> bool:
        """Returns whether a run has published the second stage, but not the last one."""
        key = run.tags[PARTITION_TAG]
        early = STAGES[1]
        last = STAGES[-1]
        current = self.workspace.store.current
        return current(early.output(key)) is not None and current(last.output(key)) is None


def run_process(run_id: str) -> int | None:
    """Returns the id of the process whose command line executes a run, or None."""
    for pid in process_states():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"execute_run" in words and run_id.encode() in words:
                return pid
    return None


def ray_worker_of(pid: int) -> int | None:
    """Returns the id of the Ray worker that started the process of a run; None if it has ended."""
    states = process_states()
    while pid in states:
        if title_of(pid).startswith("ray::"):
            return pid
        pid = states[pid].parent
    return None


def launch_backfill(home: Path) -> str:
    """Launches a backfill of every stage and partition, as the UI does; returns the backfill's id.

    Raises:
        RuntimeError: Dagster rejected the backfill.
    """
    selection = [{"path": [stage.name]} for stage in STAGES]
    values = {"backfillParams": {"assetSelection": selection, "allPartitions": True}}
    answer = ask_dagster(home, _MUTATION, values)
    launched = answer.get("launchPartitionBackfill", {})
    if "backfillId" not in launched:
        raise RuntimeError(f"the backfill was refused: {json.dumps(answer)[:2000]}")
    return str(launched["backfillId"])


def cancel_backfill(home: Path, backfill: str) -> None:
    """Cancels a backfill with its runs, as the UI does.

    Raises:
        RuntimeError: Dagster rejected the cancellation.
    """
    answer = ask_dagster(home, _CANCEL, {"id": backfill})
    kind = answer.get("cancelPartitionBackfill", {}).get("__typename")
    if kind != "CancelBackfillSuccess":
        raise RuntimeError(f"the backfill was not cancelled: {json.dumps(answer)[:2000]}")


def ask_dagster(home: Path, question: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Sends a GraphQL query to Dagster, and returns the data of the answer.

    Raises:
        RuntimeError: Dagster did not answer.
    """
    script = f"{sysconfig.get_path('scripts')}/dagster-graphql"
    command = (script, "-w", "workspace.yaml", "-t", question, "-v", json.dumps(values))
    environment = {**os.environ, "DAGSTER_HOME": str(home)}
    answer = home / "answer.json"
    done = subprocess.run(
        (*command, "-o", str(answer)), cwd=ROOT, env=environment, check=False, capture_output=True
    )
    if done.returncode or not answer.exists():
        raise RuntimeError(f"Dagster did not answer: {done.stderr.decode()[-2000:]}")
    return dict(json.loads(answer.read_text()).get("data") or {})
