"""The fault cases with files on a disk: kills, failing calls, and several commands at once."""

import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Self

from demo_pipeline.runs.workspace import Workspace
from demo_pipeline_tests.faults.commands import Command, Ended, Place, run_command, wait_for_orphans
from demo_pipeline_tests.faults.injection import Action, Disturbance, Role
from demo_pipeline_tests.faults.states import (
    State,
    blamed,
    count_files,
    differing,
    public_state,
    shown_tracebacks,
    stuck_runs,
    torn_outputs,
)
from demo_pipeline_tests.sample_workspace import open_workspace
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.script import click

RUN = ("run", "--workers", "1")
RUN_ALL = ("run", "--workers", "2")
CHAIN = 4  # number of killed runs before an undisturbed run


@dataclass(frozen=True)
class Scene:
    """The state from which every case starts, and facts about an undisturbed run.

    Attributes:
        start: a folder in which one demonstration is done. Its upload has been replaced since then,
            and a second upload has arrived.
        before: the public state at the start.
        after: the public state after an undisturbed run.
        files: number of files in the store after an undisturbed run and `prune`.
        calls: number of calls of an undisturbed run that change files, by role.
        seconds: duration of an undisturbed run.
    """

    start: Path
    before: State
    after: State
    files: int
    calls: dict[Role, int]
    seconds: float


@dataclass
class Tally:
    """The problems found in the cases of one kind.

    Attributes:
        cases: number of cases.
        happened: number of cases in which the disturbance happened.
        torn: problems of the state right after the disturbance.
        different: differences from an undisturbed run, after a last run without disturbance.
        stuck: runs that have not ended.
        left: files that `prune` should have removed.
    """

    cases: int = 0
    happened: int = 0
    torn: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def __iadd__(self, other: "Tally") -> Self:
        self.cases += other.cases
        self.happened += other.happened
        for name in ("torn", "different", "stuck", "left"):
            getattr(self, name).extend(getattr(other, name))
        return self

    @property
    def is_clean(self) -> bool:
        return not (self.torn or self.different or self.stuck or self.left)


def write_uploads(folder: Path) -> None:
    """Writes short recordings: `old/a`, its replacement `new/a`, and `new/b`."""
    video = replace(SMALL.video, fps=10)
    options = replace(SMALL, video=video)
    for name, title in {"old/a": "Tick it", "new/a": "Tick the box", "new/b": "Agree"}.items():
        recording = replace(script(click("Agree")), title=title)
        write_recording(folder / name, recording, options)


def workspace_of(place: Place) -> Workspace:
    return open_workspace(place.folder, cache=str(place.folder / "cache-of-observer"))


def require(ended: Ended, what: str) -> None:
    if ended.code != 0:
        raise RuntimeError(f"{what} ended with {ended.code}: {ended.output[-3000:]}")


def prepare(folder: Path, home_config: Path) -> Scene:
    """Builds the state from which all cases start, and runs the command once undisturbed."""
    write_uploads(folder / "recordings")
    start = Place(folder / "start")
    (start.folder / "home").mkdir(parents=True)
    shutil.copyfile(home_config, start.folder / "home" / "dagster.yaml")
    shutil.copytree(folder / "recordings/old", start.folder / "uploads")
    require(run_command(start, *RUN), "the first run")
    before = public_state(workspace_of(start))
    shutil.rmtree(start.folder / "uploads")
    shutil.copytree(folder / "recordings/new", start.folder / "uploads")
    place = copy_start(start.folder, folder / "undisturbed")
    counting = Disturbance(place.folder, "count", 0, "main", folder / "calls")
    began = time.monotonic()
    require(run_command(place, *RUN, disturbance=counting), "an undisturbed run")
    seconds = time.monotonic() - began
    roles: tuple[Role, ...] = ("main", "worker")
    calls = {role: (folder / f"calls.{role}").stat().st_size for role in roles}
    after = public_state(workspace_of(place))
    require(run_command(place, "prune", "--grace-hours", "0"), "prune")
    files = count_files(place.folder / "store")
    return Scene(start.folder, before, after, files, calls, seconds)


def copy_start(start: Path, folder: Path) -> Place:
    shutil.copytree(start, folder, symlinks=True)
    return Place(folder)


def finish(scene: Scene, place: Place, tally: Tally) -> None:
    """Executes the last, undisturbed run, and checks its results."""
    case = place.folder.name
    ended = run_command(place, *RUN)
    workspace = workspace_of(place)
    problems = differing(workspace, scene.after) + blamed(workspace)
    if ended.code != 0:
        problems.append(f"exit code {ended.code}: {ended.output[-500:]}")
    tally.different += [f"{case}: {line}" for line in problems]
    tally.stuck += [f"{case}: {line}" for line in stuck_runs(place.folder / "home")]
    pruned = run_command(place, "prune", "--grace-hours", "0")
    files = count_files(place.folder / "store")
    if pruned.code != 0 or files != scene.files:
        tally.left.append(f"{case}: {files} files instead of {scene.files}")
    if not tally.is_clean:
        return
    shutil.rmtree(place.folder)


def examine(scene: Scene, place: Place, tally: Tally, ended: Ended | None = None) -> None:
    """Checks the state between a disturbance and the next run."""
    case = place.folder.name
    lines = torn_outputs(workspace_of(place), scene.before, scene.after)
    lines += shown_tracebacks(ended.output if ended is not None else "")
    tally.torn += [f"{case}: {line}" for line in lines]


def killed(scene: Scene, place: Place, role: Role, calls: list[int]) -> Tally:
    """Kills several runs in a row, each at its own call, and then runs the command to the end."""
    tally = Tally()
    # After the kill of a worker, the command finishes its work with another worker. Without
    # `--force`, the next run would have nothing to do.
    arguments = (*RUN, "--force") if role == "worker" else RUN
    for number, call in enumerate(calls):
        log = place.folder / f"killed-{number}"
        disturbance = Disturbance(place.folder, "kill", call, role, log)
        ended = run_command(place, *arguments, disturbance=disturbance)
        wait_for_orphans(place)
        tally.cases += 1
        tally.happened += log.exists()
        examine(scene, place, tally, ended)
    finish(scene, place, tally)
    return tally


def killed_at_moments(scene: Scene, place: Place, moments: list[float]) -> Tally:
    """Kills several runs in a row, each after some time, and then runs the command to the end."""
    tally = Tally()
    for seconds in moments:
        command = Command(place, *RUN)
        time.sleep(seconds)
        command.kill()
        tally.happened += command.end().code < 0
        wait_for_orphans(place)
        tally.cases += 1
        examine(scene, place, tally)
    finish(scene, place, tally)
    return tally


def failing(scene: Scene, place: Place, role: Role, action: Action, call: int) -> Tally:
    """Executes a run in which the n-th call that changes a file fails, and all later ones too."""
    tally = Tally(cases=1)
    log = place.folder / "failed"
    disturbance = Disturbance(place.folder, action, call, role, log)
    ended = run_command(place, *RUN, disturbance=disturbance)
    tally.happened += log.exists()
    examine(scene, place, tally, ended)
    finish(scene, place, tally)
    return tally


def together(scene: Scene, place: Place, *, homes: int, prune: bool) -> Tally:
    """Runs two commands on one store at the same time.

    Args:
        scene: the state from which the case starts.
        place: folder of the case.
        homes: number of DAGSTER_HOMEs of the two commands, 1 or 2.
        prune: whether `prune` runs at the same time.
    """
    tally = Tally(cases=1, happened=1)
    other = place
    if homes == 2:
        shutil.copytree(place.folder / "home", place.folder / "home2")
        other = Place(place.folder, {"DAGSTER_HOME": str(place.folder / "home2")})
    commands = [Command(place, *RUN_ALL, name="one"), Command(other, *RUN_ALL, name="two")]
    prunes = 0
    if prune:
        end = time.monotonic() + scene.seconds
        while time.monotonic() < end:
            Command(place, "prune", name="pruning").end()
            prunes += 1
    ends = [command.end() for command in commands]
    lines = [f"exit code {ended.code}: {ended.output[-800:]}" for ended in ends if ended.code]
    tally.torn += [f"{place.folder.name}: {line}" for line in lines]
    examine(scene, place, tally)
    finish(scene, place, tally)
    return tally


Case = Callable[[Scene, Place], Tally]


def kill_cases(scene: Scene, count: int) -> Iterator[Case]:
    """Yields cases with `count` kills at random calls or moments.

    Up to `CHAIN` kills are followed by an undisturbed run.
    """
    dice = random.Random(1)
    for number, first in enumerate(range(0, count, CHAIN)):
        size = min(CHAIN, count - first)
        if number % 4 == 3:
            moments = [dice.uniform(0.05, 0.6) * scene.seconds for _ in range(size)]
            yield partial(killed_at_moments, moments=moments)
            continue
        role: Role = "worker" if number % 4 == 1 else "main"
        later = 1.0 if role == "worker" else 0.5  # a run after a kill has less to do
        shares = [1.0, *[later] * (size - 1)]
        calls = [1 + int(dice.random() * scene.calls[role] * share) for share in shares]
        yield partial(killed, role=role, calls=calls)


def failing_cases(scene: Scene, count: int) -> Iterator[Case]:
    """Yields `count` cases of failing calls, with the errors ENOSPC, EIO and EACCES in turn."""
    dice = random.Random(1)
    actions: tuple[Action, ...] = ("ENOSPC", "EIO", "EACCES")
    for number in range(count):
        role: Role = "worker" if number % 2 else "main"
        call = 1 + int(dice.random() * scene.calls[role])
        action = actions[number % len(actions)]
        yield partial(failing, role=role, action=action, call=call)


def company_cases(count: int) -> Iterator[Case]:
    """Yields `count` cases of several commands at the same time."""
    for number in range(count):
        homes = 1 + number % 2
        prune = number % 4 > 1
        yield partial(together, homes=homes, prune=prune)
