"""Scores the answers of a model, and baselines that need none, step after step.

Belongs here: the loop over the steps and what it counts, what each baseline answers, and the
pictures of failed steps for people. None shows what was typed or what a model wrote.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from demo_pipeline.desktopd.models import PARAMETERS, ActionType, StepAction, is_canonical_key
from demo_pipeline.evaluation.predictions import MISSING, UNKNOWN_STEP, Predictions, UnusableAnswer
from demo_pipeline.evaluation.rules import PRESETS, Rule, is_grounded
from demo_pipeline.evaluation.score_tables import (
    ALL_STEPS,
    DIMENSIONS,
    RIGHT,
    answers_schema,
    score_table,
)
from demo_pipeline.evaluation.true_steps import (
    TERMINATE,
    ScreenPoint,
    TargetBox,
    TrueStep,
    action_kind,
)
from demo_pipeline.exports.answers import (
    Answer,
    AnswerDecoder,
    AnsweredAction,
    AnswerFormatError,
    ForeignAction,
)
from demo_pipeline.files.parquet import TableWriter
from demo_pipeline.trajectories.contact_sheets import Tile, contact_sheet, encode_jpeg

Baseline = Callable[[TrueStep, TrueStep | None], Answer]
"""Answers a step; the second is the step before it in the same trajectory, None at the start."""

_GUESSES: Mapping[str, tuple[ActionType, Mapping[str, Any]]] = {
    "left_click": (ActionType.CLICK, {"button": "left"}),
    "middle_click": (ActionType.CLICK, {"button": "middle"}),
    "triple_click": (ActionType.CLICK, {"clicks": 3}),
    "right_click": (ActionType.RIGHT_CLICK, {}),
    "double_click": (ActionType.DOUBLE_CLICK, {}),
    "type": (ActionType.TYPE, {"text": ""}),
    "hotkey": (ActionType.HOTKEY, {"keys": ["enter"]}),
    "scroll": (ActionType.SCROLL, {"direction": "down", "amount": 1}),
    "drag": (ActionType.DRAG, {}),
    "wait": (ActionType.WAIT, {"seconds": 1.0}),
}
GUESSED_KINDS = (*_GUESSES, TERMINATE)


@lru_cache(maxsize=256)  # a store has few sizes of screens
def guessed_kind(kind: str, size: tuple[int, int]) -> Answer:
    """An action of a kind without knowing more: at the centre, no text, Enter, one notch down."""
    if kind == TERMINATE:
        return Answer((), "success")
    action_type, known = _GUESSES[kind]
    x, y = _middle((0, 0, *size))
    names = PARAMETERS[action_type].model_fields
    values = {name: x if name.endswith("x") else y for name in names if name[-1] in "xy"}
    return Answer((_action(action_type, {**values, **known}),))


def _middle(box: TargetBox) -> ScreenPoint:
    left, top, width, height = box
    return int(left + width / 2), int(top + height / 2)


def _moved(step: TrueStep, box: TargetBox, *, keep_end: bool = False) -> Answer:
    """The right answer with its places in the middle of a box."""
    known = step.action.parameters.members() if step.action else {}
    x, y = _middle(box)
    moved = {"x": x, "y": y, "start_x": x, "start_y": y}
    moved |= {} if keep_end else {"end_x": x, "end_y": y}
    if step.action is None or not known.keys() & moved.keys():
        return step.answer
    changed = {name: moved.get(name, value) for name, value in known.items()}
    return Answer((_action(step.action.action_type, changed),))


def _action(kind: ActionType, parameters: Mapping[str, Any]) -> AnsweredAction:
    return AnsweredAction(kind, PARAMETERS[kind].model_validate(dict(parameters)))


BASELINES: Mapping[str, Baseline] = {
    "screen centre": lambda step, _: guessed_kind("left_click", step.size),
    "last action": lambda step, before: (
        before.answer if before else guessed_kind("left_click", step.size)
    ),
    "true, at centre": lambda step, _: _moved(step, (0, 0, *step.size)),
    "true, at target": lambda step, _: _moved(step, step.box or (0, 0, *step.size), keep_end=True),
    "truth": lambda step, _: step.answer,
}
MOST_FREQUENT = "frequent type"
PREDICTIONS = "predictions"
_OTHER = "other"
_MOST_FAILURES, _OF_A_KIND = 24, 4
_ANSWERERS = (PREDICTIONS, *BASELINES, *GUESSED_KINDS)
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class FailedStep:
    """A step that was answered wrong; `answer` is None when there is no usable answer."""

    step: TrueStep
    answer: Answer | None
    reason: str | None


@dataclass(slots=True)
class ScoreReport:
    """What an evaluation found. None of it quotes an answer.

    Attributes:
        rows: of `SCORES_SCHEMA`, rule by rule.
        steps: how many were asked about.
        lines: how many lines the predictions have.
        unusable_steps: reason → number of steps without a usable answer.
        unusable_lines: reason → number of lines that belong to no step.
        failures: some of the steps that were answered wrong under the first rule.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    steps: int = 0
    lines: int = 0
    unusable_steps: Mapping[str, int] = field(default_factory=dict)
    unusable_lines: Mapping[str, int] = field(default_factory=dict)
    failures: list[FailedStep] = field(default_factory=list, repr=False)

    @property
    def answered(self) -> int:
        """How many steps have an answer, usable or not."""
        return self.steps - self.unusable_steps.get(MISSING, 0)

    def row(self, preset: str, answers: str = PREDICTIONS) -> Mapping[str, Any]:
        """The row of a rule over all steps."""
        wanted = (preset, answers, ALL_STEPS)
        return next(
            row for row in self.rows if (row["preset"], row["answers"], row["dimension"]) == wanted
        )


def score_steps(
    each_step: Callable[[Callable[[TrueStep], None]], object],
    presets: Sequence[str],
    decode: AnswerDecoder,
    predictions: Predictions,
    *,
    keep: Callable[[Mapping[str, Any]], None] = lambda _: None,
    seed: int = 0,
) -> ScoreReport:
    """Score the answers to steps.

    Args:
        each_step: calls what it is given with every step, by trajectory, in order.
        presets: the rules, keys of `PRESETS`.
        decode: the form of the answers.
        predictions: the answers.
        keep: is called with a row of `STEPS_SCHEMA` for every step and rule.
        seed: of the intervals.
    """
    report = ScoreReport()
    with TemporaryDirectory(prefix="demo_pipeline-") as folder:
        file = Path(folder) / "answers.parquet"
        schema = answers_schema(len(_ANSWERERS), len(presets))
        with TableWriter(file, schema, batch_rows=_ROWS_AT_ONCE) as writer:
            scorer = _Scorer(presets, decode, predictions, keep, report)
            each_step(lambda step: writer.append(scorer.row(step)))
        if report.steps:
            shown = {name: number for number, name in enumerate((PREDICTIONS, *BASELINES))}
            kind = max(GUESSED_KINDS, key=lambda name: scorer.kinds[name])
            shown[MOST_FREQUENT] = _ANSWERERS.index(kind)
            report.rows = list(score_table(file, presets, shown, len(scorer.tasks), seed))
    unknown = Counter({UNKNOWN_STEP: predictions.unasked} if predictions.unasked else {})
    report.lines = predictions.lines
    report.unusable_lines = dict(sorted((predictions.unusable + unknown).items()))
    report.unusable_steps = dict(sorted(scorer.reasons.items()))
    return report


@dataclass(slots=True)
class _Scorer:
    """Scores steps one after the other; see `score_steps`."""

    presets: Sequence[str]
    decode: AnswerDecoder
    predictions: Predictions
    keep: Callable[[Mapping[str, Any]], None]
    report: ScoreReport
    kinds: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    tasks: dict[str, int] = field(default_factory=dict)
    trajectories: int = 0
    before: TrueStep | None = None
    failed_kinds: Counter[str] = field(default_factory=Counter)

    def row(self, step: TrueStep) -> list[Any]:
        """The scores of all answers to a step, as a row of `answers_schema`."""
        before = self.before
        if before is None or before.trajectory_id != step.trajectory_id:
            before, self.trajectories = None, self.trajectories + 1
        self.before = step
        self.report.steps += 1
        self.kinds[step.kind] += 1
        answer, reason = self._predicted(step)
        if reason:
            self.reasons[reason] += 1
        answers: list[Answer | None] = [answer]
        answers += [baseline(step, before) for baseline in BASELINES.values()]
        answers += [guessed_kind(kind, step.size) for kind in GUESSED_KINDS]
        distinct = {id(given): given for given in answers}  # baselines often answer the same
        hits = {key: is_grounded(step, given or Answer(())) for key, given in distinct.items()}
        known = {
            "trajectory_id": step.trajectory_id,
            "step_index": step.step_index,
            "task": step.task,
            "application": step.application,
            "platform": step.platform,
            "difficulty": step.difficulty,
            "action_type": step.kind,
            "answered_type": None if answer is None else _answered_kind(answer),
            "grounded": hits[id(answer)],
            "reason": reason,
        }
        row: list[Any] = [self.trajectories, self.tasks.setdefault(step.task, len(self.tasks))]
        row += [step.step_index, *(known[name] for name in DIMENSIONS)]
        row += [hits[id(given)] for given in answers]
        for number, preset in enumerate(self.presets):
            rule = PRESETS[preset]
            scores = {key: _score(rule, step, given) for key, given in distinct.items()}
            row += [scores[id(given)] for given in answers]
            score = scores[id(answer)]
            self.keep({**known, "preset": preset, "score": score})
            if not number and score is not None and score < RIGHT:
                self._failed(FailedStep(step, answer, reason))
        return row

    def _failed(self, failed: FailedStep) -> None:
        """Keep a failed step for people to look at: some, and a few of a kind."""
        few = self.failed_kinds[failed.step.kind] < _OF_A_KIND
        if few and len(self.report.failures) < _MOST_FAILURES:
            self.failed_kinds[failed.step.kind] += 1
            self.report.failures.append(failed)

    def _predicted(self, step: TrueStep) -> tuple[Answer | None, str | None]:
        """The answer, or why there is none."""
        try:
            text = self.predictions.answer((step.trajectory_id, step.step_index))
            return self.decode(text, step.size), None
        except UnusableAnswer as error:
            return None, str(error)
        except AnswerFormatError as error:
            return None, error.reason
        except (ValueError, OverflowError, RecursionError):
            return None, "cannot be read"  # of no decoder known; an answer must never end a run


def _score(rule: Rule, step: TrueStep, answer: Answer | None) -> float | None:
    """What an answer is worth; no usable answer is worth nothing where the rule judges the step."""
    score = rule(step, answer or Answer(()))
    return score if answer is not None or score is None else 0.0


def _answered_kind(answer: Answer) -> str:
    """What an answer does first, in our words: a form's own name may be the model's words."""
    if not answer.actions:
        return TERMINATE if answer.status else "nothing"
    first = answer.actions[0]
    return _OTHER if isinstance(first, ForeignAction) else action_kind(first)


_COLUMNS, _TILE_WIDTH, _QUALITY = 2, 480, 80


def failures_sheet(failures: Sequence[FailedStep]) -> bytes:
    """A JPEG with a row for each failed step: what the person did, and what was answered."""
    tiles = [tile for failed in failures for tile in _row(failed)]
    title = "what the person did | what was answered" if tiles else "no step was answered wrong"
    return encode_jpeg(contact_sheet(tiles, _COLUMNS, _TILE_WIDTH, title), _QUALITY)


def _row(failed: FailedStep) -> tuple[Tile, Tile]:
    step = failed.step
    name = f"{step.trajectory_id} step {step.step_index}"
    left, top, width, height = (round(part) for part in step.box or (0, 0, 0, 0))
    known = (left, top, width, height) if step.box else None
    right = Tile(step.screenshot, name, step.kind, _drawn(step, step.answer), known)
    caption = f"no usable answer: {failed.reason}" if failed.reason else _said(failed.answer)
    return right, Tile(step.screenshot, name, caption, _drawn(step, failed.answer), known)


def _drawn(step: TrueStep, answer: Answer | None) -> StepAction | None:
    """The first action of an answer; None for what cannot be drawn."""
    first = answer.actions[0] if answer and answer.actions else None
    if not isinstance(first, AnsweredAction):
        return None
    known = first.parameters.members()
    # A model may write any words as a key, and labels show keys.
    if not all(
        map(is_canonical_key, [*(known.get("keys") or ()), *(known.get("modifiers") or ())])
    ):
        return None
    return StepAction(
        step_index=step.step_index,
        action_type=first.action_type,
        parameters=first.parameters,
        reasoning="",
    )


def _said(answer: Answer | None) -> str:
    if answer is None or not answer.actions:
        return "the task ended" if answer and answer.status else "nothing"
    first = answer.actions[0]
    said = action_kind(first) if isinstance(first, AnsweredAction) else "no action of ours"
    return said + (f" and {len(answer.actions) - 1} more" if len(answer.actions) > 1 else "")
