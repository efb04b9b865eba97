"""Which names of elements may become an instruction, and the words that name an element.

Belongs here: what a person can read, and what a person may have typed. What somebody typed is in
the `type` actions and nowhere else.
"""

import re
import unicodedata
from collections.abc import Iterable

from demo_pipeline.datasets.prompts import role_word
from demo_pipeline.formats.cudag.tool_calls import MARKER
from demo_pipeline.formats.desktopd.vocabulary import Role

MOST_CHARACTERS = 60  # a longer name is a text, not a name
_LONGEST_WORD = 24
_MACHINE_TEXT = re.compile(r"://|[\\_{}<>@=|$#^~`]|\w\.\w+\.\w|\w/\w+/\w")
_SECRET = re.compile(r"(?=\S*\d)(?=\S*[^\W\d_])[\w.-]{8,}")  # letters and digits in one long word
_LONG_NUMBER = re.compile(r"\d{5,}|(?:\d[ -]?){9,}")
_PARTS_MATTER = 3  # characters; a shorter typed text is in too many names


def shown_name(name: str) -> str:
    """A name in one line."""
    return " ".join(name.split())


def is_readable(name: str) -> bool:
    """Whether a name is words of an interface: no identifier, path, address, code or glyph."""
    shown = shown_name(name)
    if not 0 < len(shown) <= MOST_CHARACTERS or not any(map(str.isalnum, shown)):
        return False
    if any(unicodedata.category(one) in {"Cc", "Cn", "Co", "Cs"} for one in shown):
        return False
    if max(map(len, shown.split())) > _LONGEST_WORD and shown.isascii():
        return False
    patterns = (_MACHINE_TEXT, _SECRET, _LONG_NUMBER, MARKER)
    return not any(pattern.search(shown) for pattern in patterns)


class TypedTexts:
    """What was typed in a demonstration, for comparing; it shows no text."""

    def __init__(self, texts: Iterable[str]) -> None:
        folded = [_folded(text) for text in texts]
        self._texts = frozenset(filter(None, folded))
        self._all = " ".join(folded)
        self._joined = "".join(folded)

    def may_be(self, name: str) -> bool:
        """Whether a name may be something that was typed, a part of it, or have it in it."""
        folded = _folded(name)
        if folded in self._texts:
            return True
        if len(folded) >= _PARTS_MATTER and (folded in self._all or folded in self._joined):
            return True
        return any(len(text) >= _PARTS_MATTER and text in folded for text in self._texts)


def _folded(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def name_key(name: str) -> str:
    """What names are compared by: without case, spaces and signs such as `…`, `:` and `&`."""
    folded = _folded(name)
    return "".join(filter(str.isalnum, folded)) or folded


def element_text(name: str, role: str) -> str:
    """The words that name an element, as in `the Save button`."""
    shown, word = shown_name(name), role_word(Role(role))
    named = shown if shown.casefold().endswith(word) else f"{shown} {word}"
    return f"the {named}"
