"""The fault cases with a failing network. Uploads and store are buckets of a real S3 server."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline_tests.faults.commands import ROOT, Command, Place, run_command, wait_for_orphans
from demo_pipeline_tests.faults.proxy import FAULTS, NetworkPlan, network_proxy
from demo_pipeline_tests.faults.scenarios import RUN, Tally, require
from demo_pipeline_tests.faults.states import (
    State,
    blamed,
    differing,
    public_state,
    shown_tracebacks,
    stuck_runs,
    torn_outputs,
)
from demo_pipeline_tests.sample_workspace import open_workspace
from demo_pipeline_tests.simulator.s3_server import S3Server, seaweed_server

SWAPPED_AT = ("GET", "PUT")
"""Methods of the requests at which an upload is replaced.

A video is read once, from the uploads, and written once, into the store.
"""


@contextmanager
def network_cases(
    folder: Path, recordings: Path, kills: int
) -> Iterator[dict[str, list[Callable[[Path], Tally]]]]:
    """Yields all cases: network faults, uploads that are replaced while they are read, and kills.

    The server runs until the context ends. Each case gets a folder and has buckets of its own.

    Args:
        folder: folder for the files of the server.
        recordings: folder with the `old` and `new` uploads of `scenarios.write_uploads`.
        kills: number of kills of the command, at requests to the server that are spread over a run.

    Yields:
        Kind → cases.
    """
    with seaweed_server(folder / "seaweed") as server, server.connected():
        wanted, requests = _undisturbed(server, folder / "network-undisturbed", recordings)
        case = partial(_case, server, recordings, wanted=wanted)
        fault_plans = [
            NetworkPlan(faults, seed=number)
            for number, faults in enumerate((*((fault,) for fault in FAULTS), FAULTS, FAULTS))
        ]
        flip_plans = [
            NetworkPlan(("flip",), share=1.0, only=f"/{file}") for file in RECORDING_FILES
        ]
        kill_requests = [1 + requests * number // kills for number in range(kills)]
        yield {
            "network": [partial(case, plan=plan) for plan in fault_plans],
            "files flipped": [partial(case, plan=plan) for plan in flip_plans],
            "objects swapped": [
                partial(case, plan=NetworkPlan((), share=0.0), swap_at=method)
                for method in SWAPPED_AT
            ],
            "kills at S3 calls": [
                partial(case, plan=NetworkPlan((), share=0.0), kill_at=request)
                for request in kill_requests
            ],
        }


def _undisturbed(server: S3Server, folder: Path, recordings: Path) -> tuple[State, int]:
    """Returns the state after an undisturbed run, and the number of requests of the run."""
    place = _place(server, folder)
    plan = NetworkPlan((), share=0.0)
    requests = list[str]()
    _upload(place, recordings / "new")
    plan.on_request = lambda method, _: requests.append(method)
    with network_proxy(server.endpoint, plan) as endpoint:
        through = Place(folder, {**place.changes, "AWS_ENDPOINT_URL": endpoint})
        require(run_command(through, *RUN), "an undisturbed run over buckets")
    return public_state(_workspace(place)), len(requests)


def _case(
    server: S3Server,
    recordings: Path,
    folder: Path,
    *,
    plan: NetworkPlan,
    wanted: State,
    swap_at: str = "",
    kill_at: int = 0,
) -> Tally:
    """Executes a disturbed run, and then one without faults.

    The state after the second run must be `wanted`, the state after an undisturbed run.
    """
    place = _place(server, folder)
    _upload(place, recordings / ("old" if swap_at else "new"))
    tally = Tally(cases=1)
    if swap_at:
        plan.on_request = _replace_at(swap_at, lambda: _upload(place, recordings / "new"), tally)
    with network_proxy(server.endpoint, plan) as endpoint:
        through = Place(folder, {**place.changes, "AWS_ENDPOINT_URL": endpoint})
        command = Command(through, *RUN)
        if kill_at:
            plan.on_request = _kill_at(kill_at, command, tally)
        ended = command.end()
        wait_for_orphans(place)
        plan.active = False
    tally.happened += bool(plan.done)
    if plan.done:
        print(f"{folder.name}: faults {dict(plan.done)}", flush=True)
    # If the upload was not replaced, the outputs were made from the old upload. Then comparing them
    # with the outputs of the new upload would prove nothing.
    if swap_at and not tally.happened:
        tally.different.append(f"{folder.name}: not reached: no {swap_at} of a video was seen")
        return tally
    workspace = _workspace(place)
    lines = [] if swap_at else torn_outputs(workspace, {}, wanted)
    tally.torn += [f"{folder.name}: {line}" for line in (*lines, *shown_tracebacks(ended.output))]
    last = run_command(place, *RUN)
    lines = differing(workspace, wanted) + blamed(workspace)
    if last.code != 0:
        lines.append(f"exit code {last.code}: {last.output[-800:]}")
    tally.different += [f"{folder.name}: {line}" for line in lines]
    tally.stuck += [f"{folder.name}: {line}" for line in stuck_runs(folder / "home")]
    left = [str(path) for path in (folder / "cache").rglob("*.part")]
    tally.left += [f"{folder.name}: {path}" for path in left]
    return tally


def _replace_at(
    method: str, replace: Callable[[], None], tally: Tally
) -> Callable[[str, str], None]:
    """Returns a callback that replaces the upload before the first such request for a video."""
    lock = threading.Lock()

    def on_request(seen: str, path: str) -> None:
        with lock:
            if seen == method and "recording.mp4" in path and not tally.happened:
                replace()
                tally.happened += 1

    return on_request


def _kill_at(number: int, command: Command, tally: Tally) -> Callable[[str, str], None]:
    """Returns a callback that kills the command before the request with this number."""
    lock = threading.Lock()
    requests = list[str]()

    def on_request(seen: str, _: str) -> None:
        with lock:
            requests.append(seen)
            if len(requests) == number:
                command.kill()
                tally.happened += 1

    return on_request


def _place(server: S3Server, folder: Path) -> Place:
    """Creates buckets for a case, and an instance with this checkout's dagster.yaml."""
    (folder / "home").mkdir(parents=True)
    shutil.copyfile(ROOT / "dagster.yaml", folder / "home" / "dagster.yaml")
    return Place(
        folder,
        {
            "DEMO_PIPELINE_UPLOADS": server.make_bucket(),
            "DEMO_PIPELINE_STORE": server.make_bucket(),
            **server.environment(),
        },
    )


def _workspace(place: Place) -> Workspace:
    names = ("uploads", "store")
    buckets = {name: place.changes[f"DEMO_PIPELINE_{name.upper()}"] for name in names}
    cache = place.folder / f"cache-of-observer-{time.monotonic_ns()}"
    return open_workspace(place.folder, cache=str(cache), **buckets)


def _upload(place: Place, recordings: Path) -> None:
    objects = _workspace(place).uploads.objects
    for path in sorted(recordings.rglob("*.*")):
        objects.put(path.relative_to(recordings).as_posix(), path)
