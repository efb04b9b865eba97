"""Steps whose tree differs from their screenshot: exports use no label that came from such a tree.

Belongs here: taking the target out of a step's action, its sentence and its provenance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from demo_pipeline.datasets.provenance import ProvenanceRow
from demo_pipeline.datasets.steps import element_phrase
from demo_pipeline.formats.desktopd.reader import StepFiles, Trajectory
from demo_pipeline.formats.desktopd.step_actions import StepAction, points
from demo_pipeline.observation.trees.tree_agreement import Agreement

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
    plain = {"target_element": None, "reasoning": _placed(action)}
    return replace(step, action=action.model_copy(update=plain))


def _placed(action: StepAction) -> str:
    """The sentence of an action with the place instead of the element."""
    phrase = element_phrase(action.target_element)
    places: Sequence[tuple[int, int]] = points(action)
    sentence = action.reasoning.replace(f" in {phrase}", "").replace(f" into {phrase}", "")
    if not places:
        return sentence
    word = "from" if len(places) > 1 else "at"
    return sentence.replace(phrase, f"{word} ({places[0][0]}, {places[0][1]})")
