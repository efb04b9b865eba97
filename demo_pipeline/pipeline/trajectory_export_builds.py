"""Build functions and checks of the exports of whole trajectories.

Belongs here: short functions that the entries of trajectory_export_stages.py name.
"""

from collections.abc import Iterator
from pathlib import Path

from demo_pipeline.exports import trajectory_places as places
from demo_pipeline.exports.agentnet import build_agentnet, validate_agentnet
from demo_pipeline.exports.atif import build_atif, validate_atif
from demo_pipeline.exports.cua_lite import build_cua_lite
from demo_pipeline.exports.cua_lite_validator import validate_cua_lite
from demo_pipeline.exports.whole_trajectories import LOSSES_FILE
from demo_pipeline.pipeline.context import DatasetContext, Summary
from demo_pipeline.problems import Problem, errors


def run_cua_lite(context: DatasetContext, out: Path) -> Summary:
    """The rows of CUA-Lite."""
    trajectories = context.committed.trajectories
    return build_cua_lite(trajectories, out, context.settings.datasets).as_dict()


def verify_cua_lite(context: DatasetContext, out: Path) -> list[Problem]:
    """The rows against their form, and no task in two splits."""
    found = validate_cua_lite(out)
    return found if errors(found) else [*found, *_torn(context, places.cua_lite_places(out))]


def run_agentnet(context: DatasetContext, out: Path) -> Summary:
    """The lines of AgentNet."""
    trajectories = context.committed.trajectories
    return build_agentnet(trajectories, out, context.settings.datasets).as_dict()


def verify_agentnet(context: DatasetContext, out: Path) -> list[Problem]:
    """The lines against their form, and no task in two splits."""
    found = validate_agentnet(out)
    return found if errors(found) else [*found, *_torn(context, places.agentnet_places(out))]


def run_atif(context: DatasetContext, out: Path) -> Summary:
    """The ATIF trajectories."""
    trajectories = context.committed.trajectories
    return build_atif(trajectories, out, context.settings.datasets).as_dict()


def verify_atif(context: DatasetContext, out: Path) -> list[Problem]:
    """The files against the format, and no task in two splits."""
    found = validate_atif(out)
    return found if errors(found) else [*found, *_torn(context, places.atif_places(out))]


def _torn(context: DatasetContext, found: Iterator[places.Place]) -> list[Problem]:
    provenance = [trajectory.provenance for trajectory in context.committed.trajectories]
    return places.torn_task_problems(found, provenance, LOSSES_FILE)
