"""Scores the answers of a model and of baselines, step by step.

Tables and images contain neither typed text nor text of a model. The confidence intervals come
from a bootstrap over tasks, not over steps, because the steps of a task are not independent.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

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

# Columns by which steps are grouped.
DIMENSIONS = ("action_type", "application", "platform", "difficulty")
ALL_STEPS = "all"
RIGHT = 1 - 1e-9  # minimum score of a correct answer; less than 1 because of rounding errors
RESAMPLES = 1000  # number of resamples of the bootstrap
_DRAWN_AT_ONCE = 50  # number of resamples that are converted to float64 at a time

SCORES_SCHEMA = described_schema(
    (
        ("preset", pa.string(), False, "name of the scoring rule"),
        ("answers", pa.string(), False, "predictions, or the name of a baseline"),
        (
            "dimension",
            pa.string(),
            False,
            (
                "dimension by which steps are grouped: all, action_type, application, "
                "platform or difficulty"
            ),
        ),
        (
            "value",
            pa.string(),
            False,
            "value of the dimension in this group; all if the group has every step",
        ),
        ("steps", pa.int32(), False, "number of steps in the group that the rule scores"),
        ("tasks", pa.int32(), False, "number of task groups to which these steps belong"),
        ("score", pa.float64(), True, "mean score of the steps, 0 to 1; null without steps"),
        (
            "low",
            pa.float64(),
            True,
            "lower end of the 95 % bootstrap interval over tasks; null with a single task",
        ),
        (
            "high",
            pa.float64(),
            True,
            "upper end of the 95 % bootstrap interval over tasks; null with a single task",
        ),
        ("trajectory_score", pa.float64(), True, "mean of the trajectories' mean scores"),
        ("success", pa.float64(), True, "share of steps with the full score"),
        (
            "grounding",
            pa.float64(),
            True,
            "share of answered points inside the target's box; null without boxes",
        ),
        (
            "grounded_steps",
            pa.int32(),
            False,
            "number of steps with a position and a known target",
        ),
        (
            "prefix_steps",
            pa.float64(),
            True,
            "mean number of correct steps before the first wrong one; null except for all steps",
        ),
        (
            "prefix_share",
            pa.float64(),
            True,
            "mean share of a trajectory before its first wrong step; null except for all steps",
        ),
    )
)
STEPS_SCHEMA = described_schema(
    (
        ("preset", pa.string(), False, "name of the scoring rule"),
        ("trajectory_id", pa.string(), False, "id of the demonstration"),
        (
            "step_index",
            pa.int32(),
            False,
            "0-based number of the step; the number of steps for the additional step terminate",
        ),
        ("task", pa.string(), False, "task group of the demonstration"),
        ("application", pa.string(), False, "normalised name of the application"),
        ("platform", pa.string(), False, "windows, macos or linux"),
        ("difficulty", pa.string(), False, "difficulty of the task: easy, medium or hard"),
        ("action_type", pa.string(), False, "type of the person's action"),
        (
            "answered_type",
            pa.string(),
            True,
            "type of the first answered action; null if there is no usable answer",
        ),
        (
            "score",
            pa.float64(),
            True,
            "score of the answer, 0 to 1; null if the rule does not score this step",
        ),
        (
            "grounded",
            pa.bool_(),
            True,
            (
                "whether the answered point is in the target's box; null without a "
                "position or a known target"
            ),
        ),
        ("reason", pa.string(), True, "why there is no usable answer; null if there is one"),
    )
)


def answers_schema(answerers: int, presets: int) -> pa.Schema:
    """Returns the schema of the temporary file, which has a row with all scores for each step.

    Trajectories, tasks, answerers (the model and baselines) and presets (rules) are stored
    as numbers.
    `hit_<answerer>` says whether the point is in the target's box; it is null if the step has no
    position or its target is unknown. `score_<preset>_<answerer>` is null if the rule does not
    score the step.
    """
    columns = dict.fromkeys(("trajectory", "task", "step"), pa.int32())
    columns |= dict.fromkeys(DIMENSIONS, pa.string())
    for answerer in range(answerers):
        columns[f"hit_{answerer}"] = pa.bool_()
    for preset in range(presets):
        for answerer in range(answerers):
            columns[f"score_{preset}_{answerer}"] = pa.float64()
    return pa.schema(columns)


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
    file: Path, presets: Sequence[str], answerers: Mapping[str, int], tasks: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Yields the rows of `SCORES_SCHEMA`, ordered by rule, dimension, value and answerer.

    Args:
        file: Parquet with the columns of `answers_schema`.
        presets: names of the rules.
        answerers: maps the name of each answerer to its number in the column names of `file`.
        tasks: number of all tasks.
        seed: the seed of the bootstrap.
    """
    import duckdb  # noqa: PLC0415 - only an evaluation needs it

    draws = task_draws(tasks, seed)
    with duckdb.connect(config={"threads": 1}) as database:
        for preset, name in enumerate(presets):
            for dimension in (ALL_STEPS, *DIMENSIONS):
                rows = list[dict[str, Any]]()
                for answers, number in answerers.items():
                    head = {"preset": name, "answers": answers, "dimension": dimension}
                    for row in _groups(database, file, dimension, f"{preset}_{number}", draws):
                        rows.append(head | row)
                yield from sorted(rows, key=itemgetter("value"))


def _groups(
    database: Any, file: Path, dimension: str, column: str, draws: NDArray[np.uint16]
) -> Iterator[dict[str, Any]]:
    """Yields a row of scores for every value of a dimension.

    The caller adds the columns for rule, answerer and dimension.

    Args:
        file: Parquet with the columns of `answers_schema`.
        dimension: one of `DIMENSIONS`, or `ALL_STEPS`.
        column: `<preset>_<answerer>`, the part of a score column's name that follows `score_`.
        draws: see `task_draws`.
    """
    value = dimension
    if dimension == ALL_STEPS:
        value = f"'{ALL_STEPS}'"
    hit = f"hit_{column.partition('_')[2]}"
    steps = (
        f"SELECT {value} AS value, trajectory, task, step, {hit} AS hit, score_{column} AS score "  # noqa: S608
        f"FROM read_parquet($${file}$$)"
    )
    by_trajectory = database.execute(_BY_TRAJECTORY.format(steps=steps), [RIGHT]).fetchall()
    trajectory_means = {name: means for name, *means in by_trajectory}
    table = database.execute(_BY_TASK.format(steps=steps), [RIGHT]).fetchnumpy()
    values, task, *sums = table.values()
    for name in np.unique(values):
        total, count, right, grounded, hits = (column[values == name] for column in sums)
        steps_judged = int(count.sum())
        places = int(grounded.sum())
        mean, prefix, share = trajectory_means.get(name, (None, None, None))
        low, high = interval(draws, task[values == name], total, count)
        row = {
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
        }
        if dimension == ALL_STEPS:
            row |= {"prefix_steps": prefix, "prefix_share": share}
        yield row


def _share(total: float, count: int) -> float | None:
    if not count:
        return None
    return float(total) / count


def task_draws(tasks: int, seed: int = 0) -> NDArray[np.uint16]:
    """Draws the resamples of the bootstrap; the same seed gives the same result.

    Returns:
        How often each resample contains each task, shape (resamples, tasks).
    """
    draws = np.zeros((RESAMPLES, tasks), np.uint16)
    if tasks < 2:
        return draws
    rng = np.random.default_rng(seed)
    for start in range(0, RESAMPLES, _DRAWN_AT_ONCE):
        chances = np.full(tasks, 1 / tasks)
        draws[start : start + _DRAWN_AT_ONCE] = rng.multinomial(tasks, chances, _DRAWN_AT_ONCE)
    return draws


def interval(
    draws: NDArray[np.uint16],
    tasks: NDArray[np.int64],
    totals: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> tuple[float, float] | tuple[None, None]:
    """Returns the 95 % confidence interval for the mean score in a group of steps.

    Both ends are None if the group has fewer than two tasks.

    Args:
        draws: see `task_draws`.
        tasks: numbers of the tasks in the group.
        totals: sum of the scores of each task.
        counts: number of steps of each task.
    """
    if (counts > 0).sum() < 2:
        return None, None
    parts = list[NDArray[np.float64]]()
    for start in range(0, RESAMPLES, _DRAWN_AT_ONCE):
        weights = draws[start : start + _DRAWN_AT_ONCE, tasks].astype(np.float64)
        parts.append(np.stack([weights @ totals, weights @ counts]))
    drawn = np.concatenate(parts, axis=1)
    sums, steps = drawn[:, drawn[1] > 0]
    low, high = np.percentile(sums / steps, (2.5, 97.5))
    return float(low), float(high)


Baseline = Callable[[TrueStep, TrueStep | None], Answer]
"""Function that answers a step.

The second argument is the previous step, or None for the first step of a trajectory.
"""

# Type and parameters of the default action of each kind; see `guessed_kind`.
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


@lru_cache(maxsize=256)  # there are few screen sizes
def guessed_kind(kind: str, size: tuple[int, int]) -> Answer:
    """Returns an answer with the default action of a kind.

    Positions are the centre of the screen. The text is empty, the hotkey is Enter, a scroll is one
    notch down, and the task ends with success.
    """
    if kind == TERMINATE:
        return Answer((), "success")
    action_type, defaults = _GUESSES[kind]
    x, y = _middle((0, 0, *size))
    parameters = dict[str, Any]()
    for name in PARAMETERS[action_type].model_fields:
        if name.endswith("x"):
            parameters[name] = x
        elif name.endswith("y"):
            parameters[name] = y
    return Answer((_action(action_type, {**parameters, **defaults}),))


def _middle(box: TargetBox) -> ScreenPoint:
    left, top, width, height = box
    return int(left + width / 2), int(top + height / 2)


def _moved(step: TrueStep, box: TargetBox, *, keep_end: bool = False) -> Answer:
    """Returns the correct answer with its positions moved to the middle of a box.

    If `keep_end` is true, the end of a drag does not move.
    """
    if step.action is None:
        return step.answer
    parameters = step.action.parameters.members()
    x, y = _middle(box)
    new_places = {"x": x, "y": y, "start_x": x, "start_y": y}
    if not keep_end:
        new_places |= {"end_x": x, "end_y": y}
    if not parameters.keys() & new_places.keys():
        return step.answer
    changed = {name: new_places.get(name, value) for name, value in parameters.items()}
    return Answer((_action(step.action.action_type, changed),))


def _action(kind: ActionType, parameters: Mapping[str, Any]) -> AnsweredAction:
    return AnsweredAction(kind, PARAMETERS[kind].model_validate(parameters))


def _screen_centre(step: TrueStep, _before: TrueStep | None) -> Answer:
    return guessed_kind("left_click", step.size)


def _last_action(step: TrueStep, before: TrueStep | None) -> Answer:
    if before is None:
        return guessed_kind("left_click", step.size)
    return before.answer


def _true_at_centre(step: TrueStep, _before: TrueStep | None) -> Answer:
    return _moved(step, (0, 0, *step.size))


def _true_at_target(step: TrueStep, _before: TrueStep | None) -> Answer:
    return _moved(step, step.box or (0, 0, *step.size), keep_end=True)


def _truth(step: TrueStep, _before: TrueStep | None) -> Answer:
    return step.answer


BASELINES: Mapping[str, Baseline] = {
    "screen centre": _screen_centre,
    "last action": _last_action,
    "true, at centre": _true_at_centre,
    "true, at target": _true_at_target,
    "truth": _truth,
}
MOST_FREQUENT = "frequent type"
PREDICTIONS = "predictions"
_OTHER = "other"  # kind of actions that OSWorld-Desktopd does not define, such as pointer moves
_MOST_FAILURES = 24  # maximum number of wrong answers on the contact sheet
# At most four wrong answers are shown for each kind of true action, such as `scroll`.
_MOST_FAILURES_PER_KIND = 4
_ANSWERERS = (PREDICTIONS, *BASELINES, *GUESSED_KINDS)
_ROWS_AT_ONCE = 4096


class FailedStep(NamedTuple):
    """A step with a wrong answer or no usable answer.

    If there is no usable answer, `answer` is None and `reason` says why.
    """

    step: TrueStep
    answer: Answer | None
    reason: str | None


@dataclass(slots=True)
class ScoreReport:
    """The result of an evaluation; it contains no text of an answer.

    Attributes:
        rows: rows of `SCORES_SCHEMA`, ordered by rule.
        steps: number of steps.
        lines: number of lines in the predictions.
        unusable_steps: number of steps without a usable answer, by reason.
        unusable_lines: number of lines that are invalid or belong to an unknown step, by reason.
        failures: some of the steps whose answer is wrong by the first rule.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    steps: int = 0
    lines: int = 0
    unusable_steps: Mapping[str, int] = field(default_factory=dict)
    unusable_lines: Mapping[str, int] = field(default_factory=dict)
    failures: list[FailedStep] = field(default_factory=list, repr=False)

    @property
    def answered(self) -> int:
        """The number of steps with an answer, usable or not."""
        return self.steps - self.unusable_steps.get(MISSING, 0)

    def row(self, preset: str, answers: str = PREDICTIONS) -> Mapping[str, Any]:
        """Returns the row that scores all steps by a rule.

        Args:
            answers: `PREDICTIONS`, or the name of a baseline.
        """
        wanted = {"preset": preset, "answers": answers, "dimension": ALL_STEPS}
        return next(row for row in self.rows if wanted.items() <= row.items())


def score_steps(
    each_step: Callable[[Callable[[TrueStep], None]], object],
    presets: Sequence[str],
    decode: AnswerDecoder,
    predictions: Predictions,
    *,
    keep: Callable[[Mapping[str, Any]], None] = lambda _: None,
    seed: int = 0,
) -> ScoreReport:
    """Scores the answers of a model and of the baselines.

    Args:
        each_step: calls its argument with every step; the steps of a trajectory are consecutive.
        presets: the rules, keys of `PRESETS`.
        decode: parses the text of an answer.
        keep: is called with a row of `STEPS_SCHEMA` for every step and rule.
        seed: the seed of the bootstrap.
    """
    report = ScoreReport()
    with TemporaryDirectory(prefix="demo_pipeline-") as folder:
        file = Path(folder) / "answers.parquet"
        schema = answers_schema(len(_ANSWERERS), len(presets))
        with TableWriter(file, schema, batch_rows=_ROWS_AT_ONCE) as writer:
            scorer = _Scorer(presets, decode, predictions, keep, report)
            each_step(lambda step: writer.append(scorer.row(step)))
        if report.steps:
            answerers = {name: number for number, name in enumerate((PREDICTIONS, *BASELINES))}
            most_frequent = max(GUESSED_KINDS, key=scorer.kinds.__getitem__)
            answerers[MOST_FREQUENT] = _ANSWERERS.index(most_frequent)
            report.rows = list(score_table(file, presets, answerers, len(scorer.tasks), seed))
    unusable_lines = predictions.unusable.copy()
    if predictions.unasked:
        unusable_lines[UNKNOWN_STEP] += predictions.unasked
    report.lines = predictions.lines
    report.unusable_lines = dict(sorted(unusable_lines.items()))
    report.unusable_steps = dict(sorted(scorer.reasons.items()))
    return report


@dataclass(slots=True)
class _Scorer:
    """Scores one step after another; see `score_steps` for the first four fields.

    Attributes:
        report: the report to fill.
        kinds: number of steps by kind of the person's action.
        reasons: number of steps without a usable answer, by reason.
        tasks: maps each task group to its number in the rows.
        trajectories: number of trajectories so far.
        before: the previous step.
        failed_kinds: number of steps in `report.failures` by kind of the person's action.
    """

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
        """Scores all answers to a step; returns a row of `answers_schema`."""
        before = self.before
        if before is None or before.trajectory_id != step.trajectory_id:
            before = None
            self.trajectories += 1
        self.before = step
        self.report.steps += 1
        self.kinds[step.kind] += 1
        answer, reason = self._predicted(step)
        if reason:
            self.reasons[reason] += 1
        answers: list[Answer | None] = [answer]
        answers += [baseline(step, before) for baseline in BASELINES.values()]
        answers += [guessed_kind(kind, step.size) for kind in GUESSED_KINDS]
        # Several baselines may return the same object, which is scored once.
        distinct = {id(given): given for given in answers}
        hits = {key: is_grounded(step, given or Answer(())) for key, given in distinct.items()}
        facts = {
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
        row += [step.step_index, *(facts[name] for name in DIMENSIONS)]
        row += [hits[id(given)] for given in answers]
        for number, preset in enumerate(self.presets):
            rule = PRESETS[preset]
            scores = {key: _score(rule, step, given) for key, given in distinct.items()}
            row += [scores[id(given)] for given in answers]
            score = scores[id(answer)]
            self.keep({**facts, "preset": preset, "score": score})
            if number == 0 and score is not None and score < RIGHT:
                self._keep_failure(FailedStep(step, answer, reason))
        return row

    def _keep_failure(self, failed: FailedStep) -> None:
        """Adds a failed step to the report unless the limits for failures are reached."""
        kind = failed.step.kind
        if len(self.report.failures) >= _MOST_FAILURES:
            return
        if self.failed_kinds[kind] < _MOST_FAILURES_PER_KIND:
            self.failed_kinds[kind] += 1
            self.report.failures.append(failed)

    def _predicted(self, step: TrueStep) -> tuple[Answer | None, str | None]:
        """Returns the answer, or None and the reason why there is no usable answer."""
        try:
            text = self.predictions.answer((step.trajectory_id, step.step_index))
            return self.decode(without_thoughts(text), step.size), None
        except AnswerFormatError as error:
            return None, error.reason
        except (ValueError, OverflowError, RecursionError):
            # No decoder is known to raise these errors, but no answer may stop the evaluation.
            return None, "cannot be read"


def _score(rule: Rule, step: TrueStep, answer: Answer | None) -> float | None:
    """Returns the score of an answer; None if the rule does not score the step.

    A missing answer scores 0, even if the rule gives points for an empty answer.
    """
    score = rule(step, answer or Answer(()))
    if answer is None and score is not None:
        return 0.0
    return score


def _answered_kind(answer: Answer) -> str:
    """Returns the kind of an answer's first action.

    The result is `other` for an action that OSWorld-Desktopd does not define, because the model may
    have written any text as the action's name.
    """
    if not answer.actions:
        return TERMINATE if answer.status else "nothing"
    first = answer.actions[0]
    if isinstance(first, ForeignAction):
        return _OTHER
    return action_kind(first)


_COLUMNS = 2
_TILE_WIDTH = 480
_JPEG_QUALITY = 80


def failures_sheet(failures: Sequence[FailedStep]) -> bytes:
    """Returns a JPEG that shows the person's action and the model's answer for each failed step."""
    tiles = list[Tile]()
    for failed in failures:
        tiles += _tiles(failed)
    title = "what the person did | what was answered"
    if not tiles:
        title = "no step was answered wrong"
    return encode_jpeg(contact_sheet(tiles, _COLUMNS, _TILE_WIDTH, title), _JPEG_QUALITY)


def _tiles(failed: FailedStep) -> tuple[Tile, Tile]:
    """Returns the tiles with the person's action and with the model's answer."""
    step = failed.step
    name = f"{step.trajectory_id} step {step.step_index}"
    box = None
    if step.box:
        left, top, width, height = map(round, step.box)
        box = (left, top, width, height)
    caption = _caption(failed.answer)
    if failed.reason:
        caption = f"no usable answer: {failed.reason}"
    true_action = _drawable_action(step, step.answer)
    answered_action = _drawable_action(step, failed.answer)
    return (
        Tile(step.screenshot, name, step.kind, true_action, box),
        Tile(step.screenshot, name, caption, answered_action, box),
    )


def _drawable_action(step: TrueStep, answer: Answer | None) -> StepAction | None:
    """Returns the first action of an answer, or None if it is missing or cannot be drawn."""
    if answer is None or not answer.actions:
        return None
    first = answer.actions[0]
    if not isinstance(first, AnsweredAction):
        return None
    parameters = first.parameters.members()
    keys = [*(parameters.get("keys") or ()), *(parameters.get("modifiers") or ())]
    # Labels show keys, and a model may write any text as a key.
    if not all(map(is_canonical_key, keys)):
        return None
    return StepAction(
        step_index=step.step_index,
        action_type=first.action_type,
        parameters=first.parameters,
        reasoning="",
    )


def _caption(answer: Answer | None) -> str:
    """Describes an answer in a few words, without text that a model wrote."""
    if answer is None:
        return "nothing"
    if not answer.actions:
        return "the task ended" if answer.status else "nothing"
    first = answer.actions[0]
    caption = "no action of ours"
    if isinstance(first, AnsweredAction):
        caption = action_kind(first)
    if len(answer.actions) > 1:
        caption += f" and {len(answer.actions) - 1} more"
    return caption
