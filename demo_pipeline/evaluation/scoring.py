"""Scores the answers of a model, and baselines that need none, step after step.

Belongs here: the loop over the steps and what it counts, what each baseline answers, and the
pictures of failed steps for people. None shows what was typed or what a model wrote. Also the
columns of the tables, the file that the scores of steps are added up from, and the intervals: steps
of a task are not independent, so tasks are drawn, not steps.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from demo_pipeline.desktopd.models import PARAMETERS, ActionType, StepAction, is_canonical_key
from demo_pipeline.evaluation.predictions import (
    MISSING,
    UNKNOWN_STEP,
    Predictions,
    without_thoughts,
)
from demo_pipeline.evaluation.rules import PRESETS, Rule, is_grounded
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
from demo_pipeline.files.parquet import TableWriter, described_schema
from demo_pipeline.trajectories.contact_sheets import Tile, contact_sheet, encode_jpeg

DIMENSIONS = ("action_type", "application", "platform", "difficulty")
ALL_STEPS = "all"
RIGHT = 1 - 1e-9
RESAMPLES = 1000
_DRAWN_AT_ONCE = 50  # resamples in memory as 64-bit numbers

SCORES_SCHEMA = described_schema(
    (
        ("preset", pa.string(), False, "the rule"),
        ("answers", pa.string(), False, "predictions, or the name of a baseline"),
        ("dimension", pa.string(), False, "all, action_type, application, platform or difficulty"),
        ("value", pa.string(), False, "of the dimension; all: every step"),
        ("steps", pa.int32(), False, "that the rule judges"),
        ("tasks", pa.int32(), False, "task groups that these steps are of"),
        ("score", pa.float64(), True, "mean over steps, 0 to 1; null: no step"),
        ("low", pa.float64(), True, "95 % bootstrap interval over tasks; null: one task"),
        ("high", pa.float64(), True, "95 % bootstrap interval over tasks; null: one task"),
        ("trajectory_score", pa.float64(), True, "mean over trajectories of their means"),
        ("success", pa.float64(), True, "share of steps with the full score"),
        ("grounding", pa.float64(), True, "share of points in the target's box; null: no box"),
        ("grounded_steps", pa.int32(), False, "steps that have a place and a known target"),
        ("prefix_steps", pa.float64(), True, "right steps before the first wrong one, mean; all"),
        ("prefix_share", pa.float64(), True, "the same as share of the trajectory; all"),
    )
)
STEPS_SCHEMA = described_schema(
    (
        ("preset", pa.string(), False, "the rule"),
        ("trajectory_id", pa.string(), False, "demonstration id"),
        ("step_index", pa.int32(), False, "0-based; the number of steps for the closing terminate"),
        ("task", pa.string(), False, "task group"),
        ("application", pa.string(), False, "normalised name"),
        ("platform", pa.string(), False, "windows, macos, linux"),
        ("difficulty", pa.string(), False, "easy, medium, hard"),
        ("action_type", pa.string(), False, "what the person did"),
        ("answered_type", pa.string(), True, "what the answer does first; null: nothing usable"),
        ("score", pa.float64(), True, "0 to 1; null: the rule does not judge this step"),
        ("grounded", pa.bool_(), True, "the point is in the target's box; null: no place or box"),
        ("reason", pa.string(), True, "why there is no usable answer; null: there is one"),
    )
)


def answers_schema(answerers: int, presets: int) -> pa.Schema:
    """The columns of the file that is added up: a row per step, in order.

    `task` and `trajectory` are running numbers. `hit_<answerer>` tells whether the point is in the
    target's box, null without a place or box; `score_<preset>_<answerer>` is null where not judged.
    """
    numbers = range(answerers)
    names = [f"hit_{number}" for number in numbers]
    scores = [f"score_{preset}_{number}" for preset in range(presets) for number in numbers]
    columns = dict.fromkeys(("trajectory", "task", "step"), pa.int32())
    columns |= dict.fromkeys(DIMENSIONS, pa.string()) | dict.fromkeys(names, pa.bool_())
    return pa.schema(columns | dict.fromkeys(scores, pa.float64()))


_BY_TASK = """
    SELECT value, task, coalesce(sum(score), 0), count(score), count(*) FILTER (score >= ?),
        count(hit) FILTER (score IS NOT NULL), count(*) FILTER (hit AND score IS NOT NULL)
    FROM ({steps}) GROUP BY value, task ORDER BY value, task
"""
_BY_TRAJECTORY = """
    SELECT value, avg(mean), avg(prefix), avg(prefix / steps)
    FROM (
        SELECT value, avg(score) AS mean, count(*) AS steps,
            coalesce(min(place) FILTER (score < ?), count(*)) AS prefix
        FROM (
            SELECT value, trajectory, score,
                row_number() OVER (PARTITION BY value, trajectory ORDER BY step) - 1 AS place
            FROM ({steps}) WHERE score IS NOT NULL
        )
        GROUP BY value, trajectory ORDER BY value, trajectory
    )
    GROUP BY value
"""


def score_table(
    file: Path, presets: Sequence[str], shown: Mapping[str, int], tasks: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield the rows of `SCORES_SCHEMA`, by rule, dimension, value and answerer.

    Args:
        file: Parquet, of `answers_schema`.
        presets: names of the rules.
        shown: name in the table → number of the answerer.
        tasks: number of all tasks.
        seed: of the bootstrap.
    """
    import duckdb  # noqa: PLC0415 - only an evaluation needs it

    draws = task_draws(tasks, seed)
    with duckdb.connect(config={"threads": 1}) as database:
        for preset, name in enumerate(presets):
            for dimension in (ALL_STEPS, *DIMENSIONS):
                rows = [
                    {"preset": name, "answers": answers, "dimension": dimension, **row}
                    for answers, number in shown.items()
                    for row in _groups(database, file, dimension, f"{preset}_{number}", draws)
                ]
                yield from sorted(rows, key=lambda row: str(row["value"]))


def _groups(
    database: Any, file: Path, dimension: str, column: str, draws: NDArray[np.uint16]
) -> Iterator[dict[str, Any]]:
    """Yield the numbers of one answerer under one rule for every value of a dimension."""
    value = f"'{ALL_STEPS}'" if dimension == ALL_STEPS else dimension
    hit = f"hit_{column.partition('_')[2]}"
    steps = (
        f"SELECT {value} AS value, trajectory, task, step, {hit} AS hit, score_{column} AS score "  # noqa: S608
        f"FROM read_parquet($${file}$$)"
    )
    numbers = database.execute(_BY_TRAJECTORY.format(steps=steps), [RIGHT]).fetchall()
    means = {name: found for name, *found in numbers}
    table = database.execute(_BY_TASK.format(steps=steps), [RIGHT]).fetchnumpy()
    values, task, *sums = table.values()
    for name in np.unique(values):
        total, count, right, grounded, hits = (column[values == name] for column in sums)
        steps_judged = int(count.sum())
        places = int(grounded.sum())
        mean, prefix, share = means.get(name, (None, None, None))
        low, high = interval(draws, task[values == name], total, count)
        yield {
            "value": str(name),
            "steps": steps_judged,
            "tasks": int((count > 0).sum()),
            "score": _share(total.sum(), steps_judged),
            "low": low,
            "high": high,
            "trajectory_score": mean,
            "success": _share(right.sum(), steps_judged),
            "grounding": _share(hits.sum(), places),
            "grounded_steps": places,
            **({"prefix_steps": prefix, "prefix_share": share} if dimension == ALL_STEPS else {}),
        }


def _share(total: float, count: int) -> float | None:
    return float(total) / count if count else None


def task_draws(tasks: int, seed: int = 0) -> NDArray[np.uint16]:
    """(resamples, tasks): how often each task is drawn; the same seed gives the same."""
    draws = np.zeros((RESAMPLES, tasks), np.uint16)
    rng = np.random.default_rng(seed)
    for start in range(0, RESAMPLES if tasks > 1 else 0, _DRAWN_AT_ONCE):
        chances = np.full(tasks, 1 / tasks)
        draws[start : start + _DRAWN_AT_ONCE] = rng.multinomial(tasks, chances, _DRAWN_AT_ONCE)
    return draws


def interval(
    draws: NDArray[np.uint16],
    tasks: NDArray[np.int64],
    totals: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> tuple[float, float] | tuple[None, None]:
    """The 95 % interval of the mean of a group of steps; none where fewer than two tasks count.

    Args:
        draws: of all tasks, see `task_draws`.
        tasks: the numbers of the tasks in the group.
        totals: what the scores of each of these tasks add up to.
        counts: the number of their steps.
    """
    if (counts > 0).sum() < 2:
        return None, None
    drawn = np.concatenate(
        [
            np.stack([weights @ totals, weights @ counts])
            for start in range(0, RESAMPLES, _DRAWN_AT_ONCE)
            for weights in [draws[start : start + _DRAWN_AT_ONCE, tasks].astype(np.float64)]
        ],
        axis=1,
    )
    sums, steps = drawn[:, drawn[1] > 0]
    low, high = np.percentile(sums / steps, (2.5, 97.5))
    return float(low), float(high)


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
_MOST_FAILURES = 24
_OF_A_KIND = 4
_ANSWERERS = (PREDICTIONS, *BASELINES, *GUESSED_KINDS)
_ROWS_AT_ONCE = 4096


# A step that was answered wrong, its answer, and why there is none that is usable.
_Failed = tuple[TrueStep, Answer | None, str | None]


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
    failures: list[_Failed] = field(default_factory=list, repr=False)

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
            before = None
            self.trajectories = self.trajectories + 1
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
                self._failed(step, answer, reason)
        return row

    def _failed(self, step: TrueStep, answer: Answer | None, reason: str | None) -> None:
        """Keep a failed step for people to look at: some, and a few of a kind."""
        few = self.failed_kinds[step.kind] < _OF_A_KIND
        if few and len(self.report.failures) < _MOST_FAILURES:
            self.failed_kinds[step.kind] += 1
            self.report.failures.append((step, answer, reason))

    def _predicted(self, step: TrueStep) -> tuple[Answer | None, str | None]:
        """The answer, or why there is none."""
        try:
            text = self.predictions.answer((step.trajectory_id, step.step_index))
            return self.decode(without_thoughts(text), step.size), None
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


_COLUMNS = 2
_TILE_WIDTH = 480
_QUALITY = 80


def failures_sheet(failures: Sequence[_Failed]) -> bytes:
    """A JPEG with a row for each failed step: what the person did, and what was answered."""
    tiles = [tile for failed in failures for tile in _row(*failed)]
    title = "what the person did | what was answered" if tiles else "no step was answered wrong"
    return encode_jpeg(contact_sheet(tiles, _COLUMNS, _TILE_WIDTH, title), _QUALITY)


def _row(step: TrueStep, answer: Answer | None, reason: str | None) -> tuple[Tile, Tile]:
    name = f"{step.trajectory_id} step {step.step_index}"
    left, top, width, height = (round(part) for part in step.box or (0, 0, 0, 0))
    known = (left, top, width, height) if step.box else None
    right = Tile(step.screenshot, name, step.kind, _drawn(step, step.answer), known)
    caption = f"no usable answer: {reason}" if reason else _said(answer)
    return right, Tile(step.screenshot, name, caption, _drawn(step, answer), known)


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
