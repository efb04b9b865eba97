"""Build functions and checks of the training exports that are built on request.

Belongs here: short functions that the entries of derived_export_stages.py name, as in
dataset_builds.py.
"""

from pathlib import Path

from demo_pipeline.exports.cards import (
    describe_grounding,
    describe_step_labels,
    describe_transitions,
)
from demo_pipeline.exports.dataset_stats import table_stats
from demo_pipeline.exports.grounding import build_grounding, validate_grounding
from demo_pipeline.exports.step_labels import (
    OUTCOME_FOLDER,
    build_step_labels,
    validate_step_labels,
)
from demo_pipeline.exports.transitions import build_transitions, validate_transitions
from demo_pipeline.pipeline.context import DatasetContext, Summary
from demo_pipeline.problems import Problem, errors


def run_grounding(context: DatasetContext, out: Path) -> Summary:
    """The grounding rows with their card."""
    committed, settings = context.committed, context.settings.datasets
    summary = build_grounding(committed.trajectories, out, settings)
    describe_grounding(out, settings, committed.provenance, summary.left_out)
    return summary.as_dict()


def verify_grounding(context: DatasetContext, out: Path) -> list[Problem]:
    """The rows against their format, and no task in two splits."""
    found = validate_grounding(out)
    if errors(found):
        return found
    return [*found, *table_stats(out, context.committed.provenance, "role")[1]]


def run_transitions(context: DatasetContext, out: Path) -> Summary:
    """The transitions with their card."""
    committed, settings = context.committed, context.settings.datasets
    summary = build_transitions(committed.trajectories, out, settings)
    describe_transitions(out, settings, committed.provenance, summary.left_out)
    return summary.as_dict()


def verify_transitions(context: DatasetContext, out: Path) -> list[Problem]:
    """The rows against their format, and no task in two splits."""
    found = validate_transitions(out)
    if errors(found):
        return found
    return [*found, *table_stats(out, context.committed.provenance, "action_type")[1]]


def run_step_labels(context: DatasetContext, out: Path) -> Summary:
    """The labels with their card."""
    committed, settings = context.committed, context.settings.datasets
    summary = build_step_labels(committed.trajectories, out, settings)
    describe_step_labels(out, settings, committed.provenance, summary.left_out)
    return summary.as_dict()


def verify_step_labels(context: DatasetContext, out: Path) -> list[Problem]:
    """The rows against their format, and no task in two splits."""
    found = validate_step_labels(out)
    if errors(found):
        return found
    rows = out / OUTCOME_FOLDER
    return [*found, *table_stats(rows, context.committed.provenance, "outcome")[1]]
