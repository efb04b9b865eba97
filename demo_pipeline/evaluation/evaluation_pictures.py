"""Pictures of an evaluation: steps that were answered wrong, and scores over time.

Belongs here: what they show. Neither shows what was typed or what a model wrote.
"""

from collections.abc import Sequence
from itertools import pairwise

import cv2
import numpy as np

from demo_pipeline.evaluation.scoring import FailedStep
from demo_pipeline.evaluation.true_steps import TrueStep, action_kind
from demo_pipeline.formats.answers import Answer, AnsweredAction
from demo_pipeline.formats.desktopd.step_actions import StepAction
from demo_pipeline.formats.desktopd.vocabulary import is_canonical_key
from demo_pipeline.observation.contact_sheet_image import Tile, contact_sheet, encode_jpeg
from demo_pipeline.observation.overlay import DARK, GREEN, RED, WHITE, Picture, text_size, write

_COLUMNS, _TILE_WIDTH, _PREVIEW_WIDTH, _PREVIEWED = 2, 480, 240, 4
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 640, 240, 46, 34, 24
_MOST_POINTS, _MOST_NUMBERS, _MOST_LETTERS = 60, 12, 40


def failures_sheet(failures: Sequence[FailedStep], quality: int = 80) -> bytes:
    """A JPEG with a row for each failed step: what the person did, and what was answered."""
    tiles = [tile for failed in failures for tile in _row(failed)]
    return encode_jpeg(contact_sheet(tiles, _COLUMNS, _TILE_WIDTH, _title(tiles)), quality)


def failures_preview(failures: Sequence[FailedStep]) -> bytes:
    """The same of the first failures, small enough for the event log."""
    tiles = [tile for failed in failures[:_PREVIEWED] for tile in _row(failed)]
    return encode_jpeg(contact_sheet(tiles, _COLUMNS, _PREVIEW_WIDTH, _title(tiles)))


def _title(tiles: Sequence[Tile]) -> str:
    return "what the person did | what was answered" if tiles else "no step was answered wrong"


def _row(failed: FailedStep) -> tuple[Tile, Tile]:
    step, box = failed.step, failed.step.box
    name = f"{step.trajectory_id} step {step.step_index}"
    around = None if box is None else tuple(round(part) for part in box)
    left, top, width, height = around or (0, 0, 0, 0)
    known = None if around is None else (left, top, width, height)
    right = Tile(step.screenshot, name, step.kind, _drawn(step, step.answer), known)
    caption = f"no usable answer: {failed.reason}" if failed.reason else _said(failed.answer)
    return right, Tile(step.screenshot, name, caption, _drawn(step, failed.answer), known)


def _drawn(step: TrueStep, answer: Answer | None) -> StepAction | None:
    """The first action of an answer; None for what cannot be drawn."""
    first = answer.actions[0] if answer and answer.actions else None
    if not isinstance(first, AnsweredAction) or not _has_known_keys(first):
        return None
    return StepAction(
        step_index=step.step_index,
        action_type=first.action_type,
        parameters=first.parameters,
        reasoning="",
    )


def _has_known_keys(action: AnsweredAction) -> bool:
    """Whether every key is one: a model may write any words as a key, and labels show keys."""
    known = action.parameters.members()
    keys = [*(known.get("keys") or ()), *(known.get("modifiers") or ())]
    return all(map(is_canonical_key, keys))


def _said(answer: Answer | None) -> str:
    if answer is None or not answer.actions:
        return "the task ended" if answer and answer.status else "nothing"
    first = answer.actions[0]
    said = action_kind(first) if isinstance(first, AnsweredAction) else "no action of ours"
    return said + (f" and {len(answer.actions) - 1} more" if len(answer.actions) > 1 else "")


def history_chart(title: str, scores: Sequence[tuple[str, float]]) -> bytes:
    """A PNG with a point for each score from 0 to 1, oldest first.

    Args:
        title: text above.
        scores: name of the evaluation → score; only the newest are shown.
    """
    shown = list(scores)[-_MOST_POINTS:]
    picture: Picture = np.full((_HEIGHT, _WIDTH, 3), WHITE, np.uint8)
    write(picture, title, (12, 20), 0.5, DARK)
    high = _HEIGHT - _TOP - _BOTTOM
    for share in (0.0, 0.5, 1.0):
        y = _TOP + round((1 - share) * high)
        cv2.line(picture, (_LEFT, y), (_WIDTH - 12, y), (225, 225, 225), 1)
        write(picture, f"{share:.1f}", (12, y + 4), 0.4, DARK)
    step = (_WIDTH - _LEFT - 40) / max(1, len(shown) - 1)
    points = [
        (_LEFT + 14 + round(number * step), _TOP + round((1 - score) * high))
        for number, (_, score) in enumerate(shown)
    ]
    for start, end in pairwise(points):
        cv2.line(picture, start, end, GREEN, 1, cv2.LINE_AA)
    for (x, y), (_, score) in zip(points, shown, strict=True):
        cv2.circle(picture, (x, y), 3, RED, cv2.FILLED, cv2.LINE_AA)
        if len(shown) <= _MOST_NUMBERS:
            below = y < _TOP + 24
            write(picture, f"{score:.3f}", (x - 14, y + 18 if below else y - 8), 0.4, DARK)
    if shown:
        write(picture, shown[0][0][:_MOST_LETTERS], (_LEFT, _HEIGHT - 8), 0.4, DARK)
    if len(shown) > 1:
        name = shown[-1][0][:_MOST_LETTERS]
        left = _WIDTH - 12 - text_size(name, 0.4)[0]
        write(picture, name, (left, _HEIGHT - 8), 0.4, DARK)
    return bytes(cv2.imencode(".png", picture, [cv2.IMWRITE_PNG_COMPRESSION, 9])[1])
