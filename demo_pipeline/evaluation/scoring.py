"""Scores the answers of a model, and the baselines beside it, step after step.

Belongs here: the loop over the steps and what it counts. Rules, baselines and tables are in modules
of their own.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from demo_pipeline.evaluation.baselines import (
    BASELINES,
    GUESSED_KINDS,
    MOST_FREQUENT,
    guessed_kind,
)
from demo_pipeline.evaluation.predictions import MISSING, Predictions, UnusableAnswer
from demo_pipeline.evaluation.presets import Preset
from demo_pipeline.evaluation.score_tables import RIGHT, ScoreColumns
from demo_pipeline.evaluation.true_steps import (
    TERMINATE,
    TrueStep,
    action_kind,
    first_place,
    in_box,
    places,
)
from demo_pipeline.formats.answers import (
    Answer,
    AnswerDecoder,
    AnswerFormatError,
    ForeignAction,
)

PREDICTIONS = "predictions"
_OTHER = "other"
_MOST_FAILURES, _OF_A_KIND = 24, 4


@dataclass(frozen=True, slots=True)
class FailedStep:
    """A step that was answered wrong; `answer` is None when there is no usable answer."""

    step: TrueStep
    answer: Answer | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class ScoreReport:
    """What an evaluation found. None of it quotes an answer.

    Attributes:
        preset: the rule.
        rows: of `SCORES_SCHEMA`.
        steps: how many were asked about.
        answered: how many of them have an answer, usable or not.
        lines: how many lines the predictions have.
        unusable_steps: reason → number of steps without a usable answer.
        unusable_lines: reason → number of lines that belong to no step.
        failures: some of the steps that were answered wrong.
    """

    preset: Preset
    rows: list[dict[str, Any]]
    steps: int
    answered: int
    lines: int
    unusable_steps: Mapping[str, int]
    unusable_lines: Mapping[str, int]
    failures: tuple[FailedStep, ...] = field(default=(), repr=False)

    def row(self, answers: str = PREDICTIONS) -> Mapping[str, Any]:
        """The row over all steps."""
        return next(row for row in self.rows if row["answers"] == answers)


@dataclass(slots=True)
class Scorer:
    """Scores steps one after the other; see `ScoreReport`.

    Attributes:
        preset: the rule.
        decode: the form of the answers.
        predictions: the answers.
        keep: is called with a row of `STEPS_SCHEMA` for every step; None: nobody wants them.
    """

    preset: Preset
    decode: AnswerDecoder
    predictions: Predictions
    keep: Callable[[Mapping[str, Any]], None] | None = None
    _columns: ScoreColumns = field(init=False)
    _reasons: Counter[str] = field(default_factory=Counter)
    _steps: int = 0
    _before: TrueStep | None = None
    _failures: list[FailedStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._columns = ScoreColumns((PREDICTIONS, *BASELINES, *GUESSED_KINDS))

    def add(self, step: TrueStep) -> None:
        """Score the answers to a step; steps come by trajectory, in order."""
        before = self._before
        if before is not None and before.trajectory_id != step.trajectory_id:
            before = None
        self._before, self._steps = step, self._steps + 1
        answer, reason = self._predicted(step)
        answers: list[Answer | None] = [answer]
        answers += [baseline(step, before) for baseline in BASELINES.values()]
        answers += [guessed_kind(kind, step) for kind in GUESSED_KINDS]
        scores = [self._score(step, given) for given in answers]
        grounded = [_grounded(step, given) for given in answers]
        labels = {
            "task": step.task,
            "trajectory": step.trajectory_id,
            "action_type": step.kind,
            "application": step.application,
            "platform": step.platform,
            "difficulty": step.difficulty,
        }
        self._columns.append(labels, scores, grounded)
        if reason:
            self._reasons[reason] += 1
        if scores[0] is not None and scores[0] < RIGHT:
            self._note_failure(FailedStep(step, answer, reason))
        if self.keep:
            self.keep(
                {
                    **{name: labels[name] for name in labels if name != "trajectory"},
                    "trajectory_id": step.trajectory_id,
                    "step_index": step.step_index,
                    "answered_type": None if answer is None else _answered_kind(answer),
                    "score": scores[0],
                    "grounded": grounded[0],
                    "reason": reason,
                }
            )

    def report(self, seed: int = 0) -> ScoreReport:
        """What was found, once every step was added."""
        shown = {PREDICTIONS: 0}
        shown |= {name: number for number, name in enumerate(BASELINES, start=1)}
        kinds = self._columns.count("action_type")
        if kinds:
            kind = max(GUESSED_KINDS, key=lambda name: kinds.get(name, 0))
            shown[MOST_FREQUENT] = self._columns.answerers.index(kind)
        lines = Counter(self.predictions.unusable)
        if others := self.predictions.unasked():
            lines["unknown step"] += others
        return ScoreReport(
            preset=self.preset,
            rows=list(self._columns.rows(self.preset.name, shown, seed)) if self._steps else [],
            steps=self._steps,
            answered=self._steps - self._reasons[MISSING],
            lines=self.predictions.lines,
            unusable_steps=dict(sorted(self._reasons.items())),
            unusable_lines=dict(sorted(lines.items())),
            failures=tuple(self._failures),
        )

    def _predicted(self, step: TrueStep) -> tuple[Answer | None, str | None]:
        """The answer, or why there is none."""
        try:
            text = self.predictions.answer((step.trajectory_id, step.step_index))
            answer = self.decode(text, step.size)
        except UnusableAnswer as error:
            return None, str(error)
        except AnswerFormatError as error:
            return None, error.reason
        return answer, None

    def _score(self, step: TrueStep, answer: Answer | None) -> float | None:
        score = self.preset.score(step, answer or Answer(()))
        return score if answer is not None or score is None else 0.0

    def _note_failure(self, failed: FailedStep) -> None:
        if len(self._failures) == _MOST_FAILURES:
            return
        if sum(known.step.kind == failed.step.kind for known in self._failures) < _OF_A_KIND:
            self._failures.append(failed)


def _grounded(step: TrueStep, answer: Answer | None) -> bool | None:
    """Whether the first point is in the target's box; None without a place or a known target."""
    if step.box is None or step.action is None or not places(step.action):
        return None
    point = first_place(answer) if answer else None
    return point is not None and in_box(point, step.box)


def _answered_kind(answer: Answer) -> str:
    """What an answer does first, in our words: a form's own name may be the model's words."""
    if not answer.actions:
        return TERMINATE if answer.status else "nothing"
    first = answer.actions[0]
    return _OTHER if isinstance(first, ForeignAction) else action_kind(first)
