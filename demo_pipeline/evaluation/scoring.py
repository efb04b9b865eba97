"""Scores the answers of a model, and the baselines beside it, step after step.

Belongs here: the loop over the steps and what it counts. Rules, baselines and tables are in modules
of their own.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from demo_pipeline.evaluation.baselines import (
    BASELINES,
    GUESSED_KINDS,
    MOST_FREQUENT,
    guessed_kind,
)
from demo_pipeline.evaluation.group_sums import ALL_STEPS, RIGHT
from demo_pipeline.evaluation.predictions import (
    MISSING,
    UNKNOWN_STEP,
    Predictions,
    UnusableAnswer,
)
from demo_pipeline.evaluation.presets import Preset
from demo_pipeline.evaluation.score_file import ScoreFile
from demo_pipeline.evaluation.score_tables import score_table
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
_UNREADABLE = "cannot be read"
_MOST_FAILURES, _OF_A_KIND = 24, 4
_ANSWERERS = (PREDICTIONS, *BASELINES, *GUESSED_KINDS)


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
        rows: of `SCORES_SCHEMA`, rule by rule.
        steps: how many were asked about.
        answered: how many of them have an answer, usable or not.
        lines: how many lines the predictions have.
        unusable_steps: reason → number of steps without a usable answer.
        unusable_lines: reason → number of lines that belong to no step.
        failures: some of the steps that were answered wrong under the first rule.
    """

    rows: list[dict[str, Any]]
    steps: int
    answered: int
    lines: int
    unusable_steps: Mapping[str, int]
    unusable_lines: Mapping[str, int]
    failures: tuple[FailedStep, ...] = field(default=(), repr=False)

    def row(self, preset: str, answers: str = PREDICTIONS) -> Mapping[str, Any]:
        """The row of a rule over all steps."""
        wanted = (preset, answers, ALL_STEPS)
        return next(
            row for row in self.rows if (row["preset"], row["answers"], row["dimension"]) == wanted
        )


@dataclass(slots=True)
class Scorer:
    """Scores steps one after the other; see `ScoreReport`. A context manager.

    Attributes:
        presets: the rules.
        decode: the form of the answers.
        predictions: the answers.
        keep: is called with a row of `STEPS_SCHEMA` for every step and rule; None: nobody wants
            them.
    """

    presets: Sequence[Preset]
    decode: AnswerDecoder
    predictions: Predictions
    keep: Callable[[Mapping[str, Any]], None] | None = None
    _scores: ScoreFile = field(init=False)
    _kinds: Counter[str] = field(default_factory=Counter)
    _reasons: Counter[str] = field(default_factory=Counter)
    _steps: int = 0
    _before: TrueStep | None = None
    _failures: list[FailedStep] = field(default_factory=list)
    _failed_kinds: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._scores = ScoreFile(len(_ANSWERERS), len(self.presets))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._scores.__exit__(kind, error, trace)

    def add(self, step: TrueStep) -> None:
        """Score the answers to a step; steps come by trajectory, in order."""
        before = self._before
        if before is not None and before.trajectory_id != step.trajectory_id:
            before = None
        self._before, self._steps = step, self._steps + 1
        self._kinds[step.kind] += 1
        answer, reason = self._predicted(step)
        if reason:
            self._reasons[reason] += 1
        answers: list[Answer | None] = [answer]
        answers += [baseline(step, before) for baseline in BASELINES.values()]
        answers += [guessed_kind(kind, step) for kind in GUESSED_KINDS]
        distinct = {id(given): given for given in answers}  # baselines often answer the same
        hits = {key: _grounded(step, given) for key, given in distinct.items()}
        grounded = [hits[id(given)] for given in answers]
        labels = {
            "task": step.task,
            "trajectory": step.trajectory_id,
            "action_type": step.kind,
            "application": step.application,
            "platform": step.platform,
            "difficulty": step.difficulty,
        }
        known = {
            **{name: labels[name] for name in labels if name != "trajectory"},
            "trajectory_id": step.trajectory_id,
            "step_index": step.step_index,
            "answered_type": None if answer is None else _answered_kind(answer),
            "grounded": grounded[0],
            "reason": reason,
        }
        scores = []
        for preset in self.presets:
            values = {key: _score(preset, step, given) for key, given in distinct.items()}
            scores.append([values[id(given)] for given in answers])
        self._scores.append(labels, grounded, scores)
        if scores[0][0] is not None and scores[0][0] < RIGHT:
            self._note_failure(FailedStep(step, answer, reason))
        if self.keep:
            for preset, given in zip(self.presets, scores, strict=True):
                self.keep({**known, "preset": preset.name, "score": given[0]})

    def report(self, seed: int = 0) -> ScoreReport:
        """What was found, once every step was added."""
        lines = Counter(self.predictions.unusable)
        if others := self.predictions.unasked():
            lines[UNKNOWN_STEP] += others
        names = [preset.name for preset in self.presets]
        table = score_table(self._scores, names, self._shown(), seed) if self._steps else ()
        return ScoreReport(
            rows=list(table),
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
        except (ValueError, OverflowError, RecursionError):
            return None, _UNREADABLE  # of no decoder known; an answer must never end a run
        return answer, None

    def _shown(self) -> dict[str, int]:
        """The answerers of the tables: of the guesses only the most frequent type."""
        shown = {name: number for number, name in enumerate((PREDICTIONS, *BASELINES))}
        kind = max(GUESSED_KINDS, key=lambda name: self._kinds[name])
        return {**shown, MOST_FREQUENT: _ANSWERERS.index(kind)}

    def _note_failure(self, failed: FailedStep) -> None:
        kind = failed.step.kind
        if len(self._failures) < _MOST_FAILURES and self._failed_kinds[kind] < _OF_A_KIND:
            self._failed_kinds[kind] += 1
            self._failures.append(failed)


def _score(preset: Preset, step: TrueStep, answer: Answer | None) -> float | None:
    """What an answer is worth; no usable answer is worth nothing where the rule judges the step."""
    score = preset.score(step, answer or Answer(()))
    return score if answer is not None or score is None else 0.0


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
