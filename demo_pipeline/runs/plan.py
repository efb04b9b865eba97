"""What a run would build, and what that would cost by what past runs cost on this machine.

Belongs here: the reasons, and the small file of costs: no output holds times.
"""

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from demo_pipeline.files.json_files import json_bytes
from demo_pipeline.files.system_errors import best_effort
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.runs.build import (
    SETTINGS_CHANGED,
    noted_settings,
    section_values,
    setting_changes,
)
from demo_pipeline.runs.datasets import committed_trajectories, rebuild_cause
from demo_pipeline.runs.results import DemonstrationResult, Status
from demo_pipeline.runs.stage_runs import stale_stages
from demo_pipeline.runs.stages import DATASET_STAGES, STAGE_BY_NAME, STAGES, is_built, job_of
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import DATASETS_JOB, Stage
from demo_pipeline.store.errors import MissingOutput, StorageError
from demo_pipeline.store.names import is_bucket
from demo_pipeline.store.store import Store

_COSTS_FILE = "costs.json"
_RUN = "run"  # what is not of a stage of a demonstration: datasets, reporting
_SAMPLED = 20  # outputs whose size on disk is looked at
_STAGES: tuple[Stage[Any], ...] = (*STAGES, *DATASET_STAGES)
_LOG = logging.getLogger(__package__)
Reasons = Sequence[tuple[str, str]]
"""(stage, why it would be built)."""


@dataclass(frozen=True)
class _Plan:
    """What a run would build.

    Attributes:
        demonstrations: id → its stages; those after the first may turn out to be unchanged.
        datasets: the same of them.
        cpu_seconds: of it all; None: no past run has built one of the stages.
        size: bytes on disk; None likewise.
    """

    demonstrations: Mapping[str, Reasons]
    datasets: Reasons
    cpu_seconds: float | None
    size: float | None


def plan(workspace: Workspace, todo: Sequence[str], *, force: bool, notes: Path) -> _Plan:
    """What a run over these demonstrations would build; nothing is written.

    `notes`: the folder that `note_costs` writes to.
    """
    reasons = {key: _reasons(workspace, key, force=force) for key in todo}
    datasets = _dataset_reasons(workspace, forced=force, after=bool(todo))
    counts = Counter(stage for stages in reasons.values() for stage, _ in stages)
    costs = _read(notes / _COSTS_FILE)
    means = {name: total / number for name, (number, total) in costs.items()}
    sizes = {one.name: _mean_size(workspace.store, one.folder) for one in _STAGES}
    once = Counter([_RUN] if counts or datasets else [])
    outputs = counts + Counter(name for name, _ in datasets)
    return _Plan(reasons, datasets, _sum(counts + once, means), _sum(outputs, sizes))


def _sum(counts: Mapping[str, int], each: Mapping[str, float | None]) -> float | None:
    """What so many of each are together; None when one is not known."""
    parts = [(number, each.get(name)) for name, number in counts.items()]
    known = [number * one for number, one in parts if one is not None]
    return sum(known) if len(known) == len(parts) else None


def _reasons(workspace: Workspace, demonstration: str, *, force: bool) -> Reasons:
    if force:
        return [(stage.name, "--force") for stage in STAGES]
    try:
        found = stale_stages(workspace, demonstration)
        return [
            (stage.name, _named(workspace, stage, stage.output(demonstration), why))
            for stage, why in ((STAGE_BY_NAME[name], why) for name, why in found)
        ]
    except DemonstrationError as error:
        return [(STAGES[0].name, f"it cannot be read: {error.problems[0].message}")]
    except MissingOutput as error:
        return [(STAGES[0].name, str(error))]


def _named(workspace: Workspace, stage: Stage[Any], output: str, why: str) -> str:
    """A reason, with the settings that changed as far as they were noted."""
    current = workspace.store.published(output) if why == SETTINGS_CHANGED else None
    if current is None or stage.section is None:
        return why
    before = noted_settings(workspace.store, current.manifest.settings)
    after = section_values(workspace.settings, stage.section(workspace.settings))
    return ", ".join(setting_changes(before, after)) if before else why


def _dataset_reasons(workspace: Workspace, *, forced: bool, after: bool) -> Reasons:
    wanted = [
        stage
        for stage in DATASET_STAGES
        if job_of(stage) == DATASETS_JOB and is_built(stage, workspace.settings)
    ]
    if forced or after:
        why = "--force" if forced else "after the demonstrations"
        return [(stage.name, why) for stage in wanted]
    committed = committed_trajectories(workspace)
    if not committed.trajectories:
        return []
    causes = [(one, *rebuild_cause(workspace, one, committed)) for one in wanted]
    return [(one.name, _named(workspace, one, out, why)) for one, out, why in causes if why]


def note_costs(notes: Path, results: Sequence[DemonstrationResult], cpu_seconds: float) -> None:
    """Add what a run cost to a file in a folder; `cpu_seconds`: of its own process."""
    file = notes / _COSTS_FILE
    costs = _read(file)
    built = [one for result in results for one in result.stages if one.status is Status.BUILT]
    for name, seconds in (*((one.stage, one.cpu_seconds) for one in built), (_RUN, cpu_seconds)):
        number, before = costs.get(name, (0, 0.0))
        costs[name] = (number + 1, before + seconds)
    with best_effort(_LOG, "noting what the run cost"):
        file.write_bytes(json_bytes({name: list(cost) for name, cost in costs.items()}))


def _read(file: Path) -> dict[str, tuple[int, float]]:
    """Stage → number of builds, and their CPU seconds together."""
    try:
        found = json.loads(file.read_bytes())
        return {str(name): (int(number), float(cpu)) for name, (number, cpu) in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):  # none yet, or torn
        return {}


def _mean_size(store: Store, folder: str) -> float | None:
    """Bytes on disk of an output of a stage; a file with several names counts in parts."""
    sizes = list[float]()
    for output in store.outputs(folder)[:_SAMPLED]:
        with suppress(StorageError, OSError):
            if is_bucket(store.url):
                version = store.published(output)
                sizes.append(version.manifest.size if version else 0)
                continue
            content, version = store.open(output)
            found = [(content / file.path).stat() for file in version.manifest.files]
            sizes.append(sum(status.st_size / status.st_nlink for status in found))
    return fmean(sizes) if sizes else None
