"""The requests of an evaluation: one line of an OpenAI batch for every step.

Belongs here: what a line asks. The history in it is what the person did before, as in the datasets
(teacher-forced): a wrong answer does not change what later steps are asked.
"""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

from demo_pipeline.common.atomic_write import hidden_name
from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.common.hardlinks import link_or_copy
from demo_pipeline.common.json_files import json_bytes
from demo_pipeline.evaluation.predictions import batch_key
from demo_pipeline.evaluation.true_steps import StepRecord

CHAT_PATH = "/chat/completions"
# Pictures of a folder of requests: trajectory and place; and drafts that an ended run left.
_OWN_PICTURE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*_(steps_[0-9]{3,}_screenshot|final_screenshot)\.png"
    r"|\.[0-9a-f]{16}"
)
ImageForm = Literal["data", "path"]
Chat = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Question:
    """What a step is asked with: the system prompt of the form, its words, and its pictures.

    Attributes:
        system: what the model is told first; empty: nothing.
        chat: the other messages; a picture is `{"type": "image", "image": <path>}`.
    """

    system: str
    chat: Chat


QuestionForm = Callable[[StepRecord, DatasetSettings], Question]


@dataclass(slots=True)
class RequestWriter:
    """Writes the lines.

    Attributes:
        out: the file.
        form: of the questions.
        settings: of the datasets.
        model: the name in every request.
        system: replaces the system prompt of the form; None: it stays.
        images: `data`: inside the line; `path`: as `file://` URLs of copies in `folder`.
        folder: for the pictures, when they are not inside; it exists.
        max_tokens: of an answer.
        written: how many lines were written.
        pictures: names of the copies in `folder` that were made.
    """

    out: BinaryIO
    form: QuestionForm
    settings: DatasetSettings
    model: str
    system: str | None = None
    images: ImageForm = "data"
    folder: Path = field(default_factory=Path)
    max_tokens: int = 2048
    written: int = 0
    pictures: set[str] = field(default_factory=set)

    def add(self, record: StepRecord) -> None:
        """Write the request of a step."""
        question = self.form(record, self.settings)
        system = question.system if self.system is None else self.system
        messages = [{"role": "system", "content": system}] if system else []
        messages += [self._message(message, record) for message in question.chat]
        line = {
            "custom_id": batch_key((record.step.trajectory_id, record.step.step_index)),
            "method": "POST",
            "url": f"/v1{CHAT_PATH}",
            "body": {
                "model": self.model,
                "messages": messages,
                "temperature": 0,
                "max_tokens": self.max_tokens,
            },
        }
        self.out.write(json_bytes(line, compact=True))
        self.written += 1

    def _message(self, message: Mapping[str, Any], record: StepRecord) -> dict[str, Any]:
        content = message["content"]
        if isinstance(content, list):
            content = [self._part(part, record) for part in content]
        return {**message, "content": content}

    def _part(self, part: Mapping[str, Any], record: StepRecord) -> Mapping[str, Any]:
        if part["type"] != "image":
            return part
        picture: Path = part["image"]
        if self.images == "data":
            url = data_url(picture)
        else:
            place = picture.relative_to(record.candidate.source.path).as_posix()
            copy = self.folder / f"{record.step.trajectory_id}_{place.replace('/', '_')}"
            if copy.name not in self.pictures:
                _replace(copy, picture)
                self.pictures.add(copy.name)
            url = copy.resolve().as_uri()
        return {"type": "image_url", "image_url": {"url": url}}

    def remove_old_pictures(self) -> None:
        """Remove the pictures in `folder` that an earlier run made and this one did not.

        They are told by their names; other files and links stay.
        """
        for file in list(self.folder.iterdir()):
            ours = _OWN_PICTURE.fullmatch(file.name) and file.name not in self.pictures
            if ours and file.is_file() and not file.is_symlink():
                file.unlink()


def _replace(copy: Path, picture: Path) -> None:
    """Put a picture under a name that may have the one of an earlier run."""
    draft = copy.with_name(hidden_name())
    try:
        link_or_copy(picture, draft)
        draft.replace(copy)
    finally:
        draft.unlink(missing_ok=True)  # two names of one file: the system leaves both


def data_url(picture: Path) -> str:
    """A PNG or JPEG as a data URL."""
    data = picture.read_bytes()
    kind = "jpeg" if data.startswith(b"\xff\xd8") else "png"
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
