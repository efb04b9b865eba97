"""What a demonstration was asked to do: instruction, task id, application, split group.

Belongs here: the rules of formats note 2 for the words of task.json.
"""

import hashlib
import re
import unicodedata
from dataclasses import dataclass

from demo_pipeline.formats.demonstration.meta import Meta
from demo_pipeline.formats.osworld.task import normalise_app
from demo_pipeline.problems import DemonstrationError, Problem

_APP_TAG = re.compile(r"</?app\b[^>]*>", re.IGNORECASE)
_NOT_SLUG = re.compile(r"[^a-z0-9]+")
_SLUG_LENGTH = 80


@dataclass(frozen=True)
class Assignment:
    """The words of a task.

    Attributes:
        instruction: one line of text.
        source: the meta.json field it came from.
        application: normalised name.
        task_id: slug of application and quest title (without a quest: of platform and instruction).
        split_group: equal for demonstrations that must not be parted.
    """

    instruction: str
    source: str
    application: str
    task_id: str
    split_group: str


def assignment_of(meta: Meta) -> Assignment:
    """Read the task out of meta.json.

    Raises:
        DemonstrationError: no field says what was to be done.
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
        remedy = "add a title or a quest to meta.json and upload it again"
        raise DemonstrationError(Problem("no_instruction", "meta.json", message, remedy=remedy))
    application = normalise_app(quest.app if quest and quest.app else "")
    if quest is not None and strip_app_tags(quest.title):
        task_id = slug(f"{application} {strip_app_tags(quest.title)}")
    else:
        task_id = slug(f"{meta.platform or 'unknown'} {instruction}")
    return Assignment(instruction, source, application, task_id, task_id)


def strip_app_tags(text: str | None) -> str:
    """Without `<app>` tags, white space collapsed."""
    return " ".join(_APP_TAG.sub("", text or "").split())


def slug(text: str) -> str:
    """Lower-case words joined by `_`; what the cut or another script loses stays in a hash."""
    folded = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = _NOT_SLUG.sub("_", folded).strip("_")
    whole = len(words) <= _SLUG_LENGTH and text.isascii()
    if whole and words:
        return words
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{words[:_SLUG_LENGTH].rstrip('_') or 'task'}_{digest}"
