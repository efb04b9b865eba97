"""What a model is shown: the words and pictures of a question, as a chat of OpenAI's form.

Belongs here: the pictures before, magnified with the mark, and after; the words; how much a
question is. Questions hold screens and typed text: they go to the server that was given, and into
no file, log or error.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import cv2

from demo_pipeline.annotations.annotation_store import JudgedDemonstration
from demo_pipeline.annotations.annotations import RefusedValueError
from demo_pipeline.annotations.model_prompts import GRADE_PROMPT, Prompt, response_format
from demo_pipeline.desktopd.models import points
from demo_pipeline.desktopd.trajectory_reader import StepFiles
from demo_pipeline.trajectories.overlay import Picture, draw_action

_PICTURE = (1280, 720)  # pixels; the canvas is 1920 x 1080
_AROUND, _MAGNIFIED = (640, 360), (1280, 720)  # canvas pixels round the place, and as shown
_QUALITY = 85  # of JPEG
_SHOWN = 15  # earlier steps in a question about one
_ANSWER_TOKENS = 4096
_CHARACTERS_A_TOKEN, _PIXELS_A_TOKEN = 4, 28 * 28  # Qwen's; others' differ by half


@dataclass(frozen=True)
class ModelQuestion:
    """A prompt about a step, or about the whole.

    Attributes:
        step: its number; None: the whole.
        objectives: of the recording's quest.
    """

    judged: JudgedDemonstration
    prompt: Prompt
    step: int | None
    objectives: Sequence[str] = ()

    @cached_property
    def words(self) -> str:
        """What the model is told about it."""
        return "\n".join(self._about_whole() if self.step is None else self._about_step(self.step))

    @property
    def pictures(self) -> int:
        """How many it has."""
        if self.step is None:
            return int(self.prompt is GRADE_PROMPT)
        return 2 + bool(points(self._found(self.step).action))

    @property
    def tokens(self) -> int:
        """About how many it has, with the schema and without the answer."""
        told = len(self.words) + len(self.prompt.text) + len(json.dumps(self.prompt.schema))
        shown = self.pictures * _PICTURE[0] * _PICTURE[1] // _PIXELS_A_TOKEN
        return told // _CHARACTERS_A_TOKEN + shown

    def body(self, model: str, refused: str = "") -> dict[str, Any]:
        """The chat; `refused`: why the last answer was.

        Raises:
            RefusedValueError: a picture cannot be read.
        """
        shown = [
            part
            for name, data in self._shown()
            for part in ({"type": "text", "text": name}, _image(data))
        ]
        asked = [{"type": "text", "text": self.words}, *shown]
        if refused:
            told = f"An answer before this one was refused ({refused}). Keep to the schema."
            asked.append({"type": "text", "text": told})
        schema = f"\n\nJSON Schema of the answer:\n{json.dumps(self.prompt.schema)}"
        return {
            "model": model,
            "messages": [
                {"role": "system", "content": self.prompt.text + schema},
                {"role": "user", "content": asked},
            ],
            "response_format": response_format(self.prompt),
            "temperature": 0,
            "max_tokens": _ANSWER_TOKENS,
        }

    def _found(self, step: int) -> StepFiles:
        return next(one for one in self.judged.trajectory.steps if one.index == step)

    def _about_step(self, step: int) -> Iterator[str]:
        trajectory = self.judged.trajectory
        found = self._found(step)
        yield f"Task: {trajectory.task.instruction}"
        before = [one for one in trajectory.steps if one.index < step]
        if before:
            yield "Done before:"
            yield from map(self._line, before[-_SHOWN:])
        yield f"The step {step}: {found.action.reasoning}"
        done = found.action.model_dump(mode="json", exclude={"reasoning", "step_index"})
        yield f"In full: {json.dumps(done, ensure_ascii=False)}"

    def _about_whole(self) -> Iterator[str]:
        trajectory = self.judged.trajectory
        yield f"Task: {trajectory.task.instruction}"
        yield from (f"Objective: {text}" for text in self.objectives)
        yield "Steps:"
        yield from map(self._line, trajectory.steps)

    def _line(self, step: StepFiles) -> str:
        note = self.judged.trajectory.note
        told = note(step.index, "caption") or step.action.reasoning
        wrong = note(step.index, "step_correct") is False or step.index in self.judged.bad_steps
        verdict = " (a mistake)" if wrong else ""
        return f"{step.index}. {' '.join(told.split())}{verdict}"

    def _shown(self) -> Iterator[tuple[str, bytes]]:
        """Yield each picture with its name."""
        trajectory = self.judged.trajectory
        if self.step is None:
            if self.pictures:
                yield "The final screen:", _jpeg(_read(trajectory.final_screenshot), _PICTURE)
            return
        step = self._found(self.step)
        before = _read(step.screenshot)
        yield "The screen before:", _jpeg(before, _PICTURE)
        if points(step.action):
            yield "The place, magnified:", _jpeg(_marked(before, step), _MAGNIFIED)
        after = (one.screenshot for one in trajectory.steps if one.index > self.step)
        yield (
            "The screen after:",
            _jpeg(_read(next(after, trajectory.final_screenshot)), _PICTURE),
        )


def _read(path: Path) -> Picture:
    picture: Picture | None = cv2.imread(str(path)) if path.is_file() else None
    if picture is None:
        raise RefusedValueError("no_picture")
    return picture


def _marked(picture: Picture, step: StepFiles) -> Picture:
    """What is round the places of an action, with the mark; all of it for a long drag."""
    picture = picture.copy()
    height, width = picture.shape[:2]
    draw_action(picture, step.action, 1.0, None)
    across, down = ([place[axis] for place in points(step.action)] for axis in (0, 1))
    wide = max(_AROUND[0], max(across) - min(across) + 200)
    high = max(_AROUND[1], max(down) - min(down) + 200, wide * height // width)
    wide = max(wide, high * width // height)
    left = min(max(0, (min(across) + max(across) - wide) // 2), max(0, width - wide))
    top = min(max(0, (min(down) + max(down) - high) // 2), max(0, height - high))
    return picture[top : top + high, left : left + wide]


def _jpeg(picture: Picture, size: tuple[int, int]) -> bytes:
    small = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    _, data = cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    return data.tobytes()


def _image(data: bytes) -> dict[str, Any]:
    url = f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}
