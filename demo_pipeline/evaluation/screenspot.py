"""The rule of ScreenSpot and ScreenSpot-Pro: the point is in the target's box.

Source: ScreenSpot-Pro, eval_screenspot_pro.py. Belongs here: the rule alone.
"""

from demo_pipeline.evaluation.true_steps import TrueStep, first_place, in_box, places
from demo_pipeline.formats.answers import Answer


def score_step_screenspot(step: TrueStep, answer: Answer) -> float | None:
    """1 when the first point of the answer is in the box, edges included, else 0.

    What the answer does there does not count. None for a step without a place, or whose target is
    not known.
    """
    if step.box is None or step.action is None or not places(step.action):
        return None
    point = first_place(answer)
    return float(point is not None and in_box(point, step.box))
