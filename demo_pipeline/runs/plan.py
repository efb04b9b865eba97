"""What a run would build, and why; nothing is written for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from demo_pipeline.problems import DemonstrationError
from demo_pipeline.runs.build import (
    SETTINGS_CHANGED,
    noted_settings,
    section_values,
    setting_changes,
)
from demo_pipeline.runs.datasets import committed_trajectories, rebuild_cause
from demo_pipeline.runs.stage_runs import stale_stages
from demo_pipeline.runs.stages import DATASET_STAGES, STAGE_BY_NAME, STAGES, is_built, job_of
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import DATASETS_JOB, Stage
from demo_pipeline.store.errors import MissingOutput

Reasons = Sequence[tuple[str, str]]
"""(stage, why it would be built)."""


@dataclass(frozen=True)
class Plan:
    """The stages that a run would build by demonstration, and the datasets.

    Those after the first may turn out to be unchanged.
    """

    demonstrations: Mapping[str, Reasons]
    datasets: Reasons


def plan(workspace: Workspace, todo: Sequence[str], *, force: bool) -> Plan:
    """What a run over these demonstrations would build; nothing is written."""
    reasons = {key: _reasons(workspace, key, force=force) for key in todo}
    return Plan(reasons, _dataset_reasons(workspace, forced=force, after=bool(todo)))


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
