"""Derives the texts of task.json from meta.json: instruction, task id, application, split group."""

import hashlib
import re
import unicodedata
from dataclasses import dataclass

from demo_pipeline.files.recording_files import META_FILE
from demo_pipeline.osworld.task import normalise_app
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording.meta import Meta

# Matches an `<app>` tag. If the tag is between two spaces, it also matches the second space, so
# that removing the match leaves a single space.
_APP_TAG = re.compile(r"(?<=[ \t])</?app\b[^>]*>[ \t]+|</?app\b[^>]*>", re.IGNORECASE)
_LINE_END = re.compile(r"\r\n?")
_BLANK_START = re.compile(r"\A(?:[^\S\n]*\n)+")
_NOT_SLUG = re.compile(r"[^a-z0-9]+")
_SLUG_LENGTH = 80  # maximum number of characters of a slug, not counting the hash


@dataclass(frozen=True)
class Assignment:
    """The task that a person was given, as meta.json describes it.

    Attributes:
        instruction: the text of the task, with its line breaks and indentation.
        source: the field of meta.json that contains the instruction.
        application: normalised name of the application.
        task_id: slug of application and quest title, or of platform and instruction if there is no
            quest title.
        split_group: equal for all demonstrations of a task, so that all are in the same split.
    """

    instruction: str
    source: str
    application: str
    task_id: str
    split_group: str


def assignment_of(meta: Meta) -> Assignment:
    """Returns the task that meta.json describes.

    The instruction is the first non-blank text among quest.content, quest.title, title and
    description.

    Raises:
        DemonstrationError: all four fields are blank.
    """
    quest = meta.quest
    fields = {"title": meta.title, "description": meta.description}
    quest_app = ""
    quest_title = ""
    if quest is not None:
        fields = {"quest.content": quest.content, "quest.title": quest.title, **fields}
        quest_app = quest.app or ""
        quest_title = visible_text(quest.title)
    source = ""
    instruction = ""
    for name, text in fields.items():
        if not instruction:
            source = name
            instruction = visible_text(text)
    if not instruction:
        message = "no instruction: quest.content, quest.title, title and description are blank"
        remedy = "add a title or a quest to meta.json and upload it again, or import it with --task"
        raise DemonstrationError(Problem("no_instruction", META_FILE, message, remedy=remedy))
    application = normalise_app(quest_app)
    if quest_title:
        task_id = slug(f"{application} {quest_title}")
    else:
        task_id = slug(f"{meta.platform or 'unknown'} {instruction}")
    return Assignment(instruction, source, application, task_id, task_id)


def visible_text(text: str) -> str:
    r"""Returns a text as the person saw it: without `<app>` tags and surrounding blank lines.

    Line ends become `\n`. Spaces inside lines are kept, and so is the indentation of a text with
    several lines, because the person may have had to type them.
    """
    lines = _LINE_END.sub("\n", _APP_TAG.sub("", text)).rstrip()
    whole = _BLANK_START.sub("", lines)
    return whole if "\n" in whole else whole.lstrip()


def one_line(text: str) -> str:
    """Returns a text on a single line with single spaces, for comparisons."""
    return " ".join(visible_text(text).split())


def slug(text: str) -> str:
    """Returns the words of a text in lower-case ASCII, joined by `_`, for use as a name.

    A hash follows if the text has characters beyond ASCII, has no words, or is cut to 80
    characters. The hash ignores case, white space, and the Unicode normal form.
    """
    text = " ".join(text.split())
    folded = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = _NOT_SLUG.sub("_", folded).strip("_")
    if words and len(words) <= _SLUG_LENGTH and text.isascii():
        return words
    comparable = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    digest = hashlib.sha256(comparable.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{words[:_SLUG_LENGTH].rstrip('_') or 'task'}_{digest}"
