"""The registry of the rules that score an answer.

Belongs here: entries only; each rule is in a module of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from demo_pipeline.evaluation.agentnetbench import score_step_bench, score_step_bench_revised
from demo_pipeline.evaluation.cudag_rule import score_step_cudag
from demo_pipeline.evaluation.mind2web import score_step_mind2web
from demo_pipeline.evaluation.screenspot import score_step_screenspot
from demo_pipeline.evaluation.strict import score_step_strict
from demo_pipeline.evaluation.true_steps import TrueStep
from demo_pipeline.formats.answers import Answer


@dataclass(frozen=True, slots=True)
class Preset:
    """A rule with its source.

    Attributes:
        name: the value of `--preset`.
        score: what an answer to a step is worth, 0 to 1; None: the rule does not judge this step.
        headline: which mean the source publishes: over steps, or over tasks of their means.
        source: where the rule is from.
        below_one: why the truth itself may have less than 1; empty: it always has 1.
    """

    name: str
    score: Callable[[TrueStep, Answer], float | None]
    headline: Literal["steps", "tasks"]
    source: str
    below_one: str = ""


_PASSED_OVER = (
    "its script has no rule for waits and the middle button: they have 0 whatever is answered"
)
_OWN_PLACE = "a place that the person chose outside the target's box is wrong"

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("strict", score_step_strict, "steps", "this project", _OWN_PLACE),
        Preset(
            "agentnetbench", score_step_bench, "steps", "OpenCUA, eval.py of 2025", _PASSED_OVER
        ),
        Preset(
            "agentnetbench_revised",
            score_step_bench_revised,
            "steps",
            "OpenCUA, eval.py as revised (60da8b9)",
            _PASSED_OVER,
        ),
        Preset("mind2web", score_step_mind2web, "tasks", "UGround and SeeClick", _OWN_PLACE),
        Preset("screenspot", score_step_screenspot, "steps", "ScreenSpot-Pro", _OWN_PLACE),
        Preset("cudag", score_step_cudag, "steps", "CUDAG, one reading of its tolerance"),
    )
}
