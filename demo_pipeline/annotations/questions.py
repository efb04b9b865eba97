"""Builds the requests that ask a model about a step or a demonstration, in OpenAI's chat format.

Requests contain screenshots and typed text, which must never appear in files, logs or errors.
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

_IMAGE_SIZE = (1280, 720)  # size of screenshots in a request, reduced from 1920 x 1080 pixels
_CUT_OUT_SIZE = (640, 360)  # minimum size of the region around an action, before magnification
_MAGNIFIED_SIZE = (1280, 720)  # size of the region around an action, after magnification
_JPEG_QUALITY = 85
_MOST_EARLIER_STEPS = 15  # maximum number of earlier steps in a question about a step
_ANSWER_TOKENS = 4096  # maximum number of tokens of an answer
# Average of Qwen's tokenizer. The averages of other tokenizers differ by up to 50 %.
_CHARACTERS_PER_TOKEN = 4
_PIXELS_PER_TOKEN = 28 * 28  # number of pixels of an image per token of Qwen's vision models


@dataclass(frozen=True)
class ModelQuestion:
    """A question to a model about a single step or a whole demonstration.

    Attributes:
        step: number of the step, or None for the whole demonstration.
        objectives: objectives of the recorded task, for a question about the whole demonstration.
    """

    judged: JudgedDemonstration
    prompt: Prompt
    step: int | None
    objectives: Sequence[str] = ()

    @cached_property
    def words(self) -> str:
        """The text of the question, which is sent before the images."""
        if self.step is None:
            lines = self._about_whole()
        else:
            lines = self._about_step(self.step)
        return "\n".join(lines)

    @property
    def pictures(self) -> int:
        """The number of images in the request."""
        if self.step is None:
            return int(self.prompt is GRADE_PROMPT)
        return 2 + bool(points(self._step_files(self.step).action))

    @property
    def tokens(self) -> int:
        """The approximate number of tokens in the request, without the answer."""
        schema = json.dumps(self.prompt.schema)
        characters = len(self.words) + len(self.prompt.text) + len(schema)
        pixels = self.pictures * _IMAGE_SIZE[0] * _IMAGE_SIZE[1]
        return characters // _CHARACTERS_PER_TOKEN + pixels // _PIXELS_PER_TOKEN

    def body(self, model: str, refused: str = "") -> dict[str, Any]:
        """Returns the JSON body of the request.

        Args:
            refused: reason why the previous answer was refused, or empty for the first attempt.

        Raises:
            RefusedValueError: a screenshot cannot be read.
        """
        content = [_text(self.words)]
        for caption, jpeg in self._images():
            content += [_text(caption), _image(jpeg)]
        if refused:
            hint = f"An answer before this one was refused ({refused}). Keep to the schema."
            content.append(_text(hint))
        schema = f"\n\nJSON Schema of the answer:\n{json.dumps(self.prompt.schema)}"
        return {
            "model": model,
            "messages": [
                {"role": "system", "content": self.prompt.text + schema},
                {"role": "user", "content": content},
            ],
            "response_format": response_format(self.prompt),
            "temperature": 0,
            "max_tokens": _ANSWER_TOKENS,
        }

    def _step_files(self, number: int) -> StepFiles:
        return next(step for step in self.judged.trajectory.steps if step.index == number)

    def _about_step(self, number: int) -> Iterator[str]:
        trajectory = self.judged.trajectory
        action = self._step_files(number).action
        yield f"Task: {trajectory.task.instruction}"
        earlier_steps = [step for step in trajectory.steps if step.index < number]
        if earlier_steps:
            yield "Done before:"
            yield from map(self._line, earlier_steps[-_MOST_EARLIER_STEPS:])
        yield f"The step {number}: {action.reasoning}"
        members = action.model_dump(mode="json", exclude={"reasoning", "step_index"})
        yield f"In full: {json.dumps(members, ensure_ascii=False)}"

    def _about_whole(self) -> Iterator[str]:
        trajectory = self.judged.trajectory
        yield f"Task: {trajectory.task.instruction}"
        yield from (f"Objective: {text}" for text in self.objectives)
        yield "Steps:"
        yield from map(self._line, trajectory.steps)

    def _line(self, step: StepFiles) -> str:
        """Describes a step in one line."""
        note = self.judged.trajectory.note
        caption = note(step.index, "caption") or step.action.reasoning
        line = f"{step.index}. {' '.join(caption.split())}"
        if note(step.index, "step_correct") is False or step.index in self.judged.bad_steps:
            line += " (a mistake)"
        return line

    def _images(self) -> Iterator[tuple[str, bytes]]:
        """Yields a caption and a JPEG for each image."""
        trajectory = self.judged.trajectory
        if self.step is None:
            if self.pictures:
                yield "The final screen:", _jpeg(_read(trajectory.final_screenshot), _IMAGE_SIZE)
            return
        step = self._step_files(self.step)
        screenshot = _read(step.screenshot)
        yield "The screen before:", _jpeg(screenshot, _IMAGE_SIZE)
        if points(step.action):
            yield "The place, magnified:", _jpeg(_cut_out(screenshot, step), _MAGNIFIED_SIZE)
        later = (other.screenshot for other in trajectory.steps if other.index > self.step)
        after = next(later, trajectory.final_screenshot)
        yield "The screen after:", _jpeg(_read(after), _IMAGE_SIZE)


def _read(path: Path) -> Picture:
    picture: Picture | None = cv2.imread(str(path)) if path.is_file() else None
    if picture is None:
        raise RefusedValueError("no_picture")
    return picture


def _cut_out(picture: Picture, step: StepFiles) -> Picture:
    """Marks an action in a screenshot, and returns the part of the screenshot around the action.

    The part has at least the size `_CUT_OUT_SIZE`.
    """
    picture = picture.copy()
    height, width = picture.shape[:2]
    draw_action(picture, step.action, 1.0, None)
    xs = [x for x, _ in points(step.action)]
    ys = [y for _, y in points(step.action)]
    part_width = max(_CUT_OUT_SIZE[0], max(xs) - min(xs) + 200)
    part_height = max(_CUT_OUT_SIZE[1], max(ys) - min(ys) + 200, part_width * height // width)
    part_width = max(part_width, part_height * width // height)
    left = min(max(0, (min(xs) + max(xs) - part_width) // 2), max(0, width - part_width))
    top = min(max(0, (min(ys) + max(ys) - part_height) // 2), max(0, height - part_height))
    return picture[top : top + part_height, left : left + part_width]


def _jpeg(picture: Picture, size: tuple[int, int]) -> bytes:
    small = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    _, data = cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    return data.tobytes()


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image(jpeg: bytes) -> dict[str, Any]:
    url = f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}
