"""Steps whose tree differs from their screenshot: exports use no label that came from such a tree.

Belongs here: taking the target out of a step's action, its sentence and its provenance.
"""

from collections.abc import Mapping
from dataclasses import replace

from demo_pipeline.desktopd.reader import StepFiles, Trajectory
from demo_pipeline.observation.trees.tree_agreement import Agreement
from demo_pipeline.trajectories.provenance import ProvenanceRow
from demo_pipeline.trajectories.step_sentences import step_sentence

AGREEMENT_COLUMN = "tree_agreement"
_TARGET_COLUMNS = ("target_x", "target_y", "target_width", "target_height")


def without_stale_targets(
    trajectory: Trajectory, rows: Mapping[int, ProvenanceRow]
) -> tuple[Trajectory, dict[int, ProvenanceRow]]:
    """A trajectory and its provenance by step index, without the targets from stale trees.

    The steps and their trees stay; `tree_agreement` marks them.
    """
    stale = {index for index, row in rows.items() if row[AGREEMENT_COLUMN] == Agreement.DIFFERS}
    steps = [_without_target(step) if step.index in stale else step for step in trajectory.steps]
    kept = {
        index: {**row, **{name: None for name in _TARGET_COLUMNS if name in row}}
        if index in stale
        else row
        for index, row in rows.items()
    }
    return replace(trajectory, steps=tuple(steps)), kept


def _without_target(step: StepFiles) -> StepFiles:
    action = step.action
    if action.target_element is None:
        return step
    sentence = step_sentence(action.action_type, action.parameters, None)
    plain = {"target_element": None, "reasoning": sentence}
    return replace(step, action=action.model_copy(update=plain))
