"""What a demonstration was asked to do: instruction, task id, application, split group.

Belongs here: how these texts of task.json follow from meta.json.
"""

import hashlib
import re
import unicodedata
from dataclasses import dataclass

from demo_pipeline.files.recording_files import META_FILE
from demo_pipeline.osworld.task import normalise_app
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording.meta import Meta

_APP_TAG = re.compile(r"</?app\b[^>]*>", re.IGNORECASE)
_NOT_SLUG = re.compile(r"[^a-z0-9]+")
_SLUG_LENGTH = 80


@dataclass(frozen=True)
class Assignment:
    """What a person was asked to do, and the names that follow from it.

    Attributes:
        instruction: one line of text.
        source: the meta.json field it came from.
        application: normalised name.
        task_id: slug of application and quest title (without a quest: of platform and instruction).
        split_group: the same for demonstrations that must be in the same split.
    """

    instruction: str
    source: str
    application: str
    task_id: str
    split_group: str


def assignment_of(meta: Meta) -> Assignment:
    """Read the assignment from meta.json.

    The instruction is the first of quest.content, quest.title, title and description that is not
    blank.

    Raises:
        DemonstrationError: all of them are blank.
    """
    quest = meta.quest
    fields = (
        ("quest.content", quest.content if quest else ""),
        ("quest.title", quest.title if quest else ""),
        ("title", meta.title),
        ("description", meta.description),
    )
    texts = [(name, strip_app_tags(text)) for name, text in fields]
    source, instruction = next((pair for pair in texts if pair[1]), ("", ""))
    if not instruction:
        message = "no instruction: quest.content, quest.title, title and description are blank"
        remedy = "add a title or a quest to meta.json and upload it again, or import it with --task"
        raise DemonstrationError(Problem("no_instruction", META_FILE, message, remedy=remedy))
    application = normalise_app(quest.app if quest and quest.app else "")
    if quest is not None and strip_app_tags(quest.title):
        task_id = slug(f"{application} {strip_app_tags(quest.title)}")
    else:
        task_id = slug(f"{meta.platform or 'unknown'} {instruction}")
    return Assignment(instruction, source, application, task_id, task_id)


def strip_app_tags(text: str | None) -> str:
    """The text without `<app>` tags and with white space collapsed; empty for None."""
    return " ".join(_APP_TAG.sub("", text or "").split())


def slug(text: str) -> str:
    """Lower-case ASCII words joined by `_`, at most 80 characters.

    A hash is appended when the text was cut or had other characters, so that slugs stay distinct;
    it is the same for another case, or another form of the same characters.
    """
    folded = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = _NOT_SLUG.sub("_", folded).strip("_")
    whole = len(words) <= _SLUG_LENGTH and text.isascii()
    if whole and words:
        return words
    same = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    digest = hashlib.sha256(same.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{words[:_SLUG_LENGTH].rstrip('_') or 'task'}_{digest}"
