"""Finds and replaces each secret of a demonstration in all of the demonstration's texts.

A secret that a detector finds in one text is recognised in all others, even if it is encoded in a
URL, split over two lines, cut off or misread.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache
from html import escape
from operator import ne
from typing import Any
from urllib.parse import quote

from demo_pipeline.observation.trees.secret_fields import PASSWORD
from demo_pipeline.privacy.detectors import Detectors, PrivateSpan, joined_texts
from demo_pipeline.settings import PrivacyKind

_SHORTEST = 4  # minimum characters in a secret; shorter secrets occur inside ordinary words
# Kinds of secrets from the user's own lists. Parts of these secrets are not private.
_LISTED = frozenset({"word", "expression"})
_CHECKED = frozenset({"card", "iban"})  # kinds whose check digits prove that pieces belong together
# A part of a secret is private if it has at least 60 % of the secret's characters, and at least
# eight characters.
_TELLING_SHARE = 0.6
_SHORTEST_PART = 8
# Actions after which the person may type into another field.
_BREAKS = frozenset({"click", "double_click", "right_click", "drag"})
_HIDDEN = re.compile(re.escape(PASSWORD))
_MOST_TYPED = 2000  # maximum number of typed characters that are searched together
# Maximum number of typing actions that are searched together. A secret can be split over several
# actions; for example, a card number may be typed into four fields.
_MOST_TYPINGS = 8
# Characters that text recognition confuses at a height of 11 pixels, each with its replacement.
_ALIKE = str.maketrans("0l1i|5$8zq", "oiiiissb2g")


@dataclass
class PrivateTexts:
    """Collects the secrets of a demonstration, and replaces them in texts.

    Attributes:
        kinds: maps each secret and each piece of a secret to its kind, in the order of discovery.
    """

    detectors: Detectors
    kinds: dict[str, PrivacyKind] = field(default_factory=dict)
    # Maps the kind and the folded text of a secret to the number in the secret's placeholder.
    _numbers: dict[tuple[PrivacyKind, str], int] = field(default_factory=dict)
    # The private parts that the detectors found in each learned text.
    _detected: dict[str, Sequence[PrivateSpan]] = field(default_factory=dict)
    # Caches of `spans` and `recognised_spans`.
    _spans: dict[str, list[PrivateSpan]] = field(default_factory=dict)
    _recognised_spans: dict[str, list[PrivateSpan]] = field(default_factory=dict)

    def learn(self, texts: Sequence[str]) -> None:
        """Searches new texts with the detectors, and remembers the secrets in the texts."""
        self._detected |= dict.fromkeys(texts, ())
        for text in self.detectors.suspects(texts):
            self._detected[text] = self.detectors.find(text)
            for span in self._detected[text]:
                self.add(text[span.start : span.end], span.kind)

    def private(self, texts: Sequence[str]) -> set[str]:
        """Returns the texts that contain a secret. Each text must have been learned before."""
        joined = joined_texts(texts)
        joined_lower = joined_texts(map(str.lower, texts))
        private_texts = {text for text in texts if self._detected[text] or PASSWORD in text}
        for secret, kind in self.kinds.items():
            written = _written(secret, bounded=kind in _LISTED)
            if written.search(joined) or any(piece in joined_lower for piece in _pieces(secret)):
                private_texts |= {text for text in texts if any(self._same(secret, text))}
        return private_texts

    def add(self, secret: str, kind: PrivacyKind, whole: str = "") -> None:
        """Remembers a secret, and each line of the secret as a piece.

        Args:
            whole: the complete secret if `secret` is only a piece. Both get the same number in
                their placeholders.
        """
        number = self._number(kind, whole or secret)
        for piece in {secret: 0, **dict.fromkeys(map(str.strip, secret.splitlines()))}:
            if len(piece) >= _SHORTEST:
                self.kinds.setdefault(piece, kind)
                self._numbers.setdefault((kind, folded(piece)), number)
        self._spans.clear()
        self._recognised_spans.clear()

    def learn_typed(self, actions: Iterable[Mapping[str, Any]]) -> None:
        """Remembers secrets whose typing was split into several actions, for example by a pause.

        Args:
            actions: the contents of the action.json of all steps, in order.
        """
        letters = list[tuple[str, int]]()  # typed letters, each with the number of its action
        for number, action in enumerate(actions):
            given = action["parameters"]
            kind = action["action_type"]
            if kind == "type":
                letters += [(letter, number) for letter in given["text"]]
                self._learn_pieces(letters[-_MOST_TYPED:])
            elif kind == "hotkey" and given["keys"] == ["backspace"]:
                del letters[max(0, len(letters) - (given.get("presses") or 1)) :]
            elif kind in _BREAKS or (kind == "hotkey" and given["keys"][0] in {"tab", "enter"}):
                letters.append(("\n", number))

    def _learn_pieces(self, letters: Sequence[tuple[str, int]]) -> None:
        """Finds secrets in the joined texts of several typing actions, and remembers their pieces.

        For kinds with check digits, the texts are also searched without white space.

        Args:
            letters: typed letters, each with the number of its action.
        """
        typings = sorted({number for _, number in letters})[-_MOST_TYPINGS:-1]
        for first in typings:
            last = list[tuple[str, int]]()
            last_without_spaces = list[tuple[str, int]]()
            for letter, number in letters:
                if number >= first:
                    last.append((letter, number))
                    if not letter.isspace():
                        last_without_spaces.append((letter, number))
            self._learn_from(last, with_spaces=True)
            self._learn_from(last_without_spaces, with_spaces=False)

    def _learn_from(self, letters: Sequence[tuple[str, int]], *, with_spaces: bool) -> None:
        text = "".join(letter for letter, _ in letters)
        for span in self.detectors.find(text):
            if with_spaces or span.kind in _CHECKED:
                self._add_pieces(letters[span.start : span.end], span.kind)

    def _add_pieces(self, letters: Sequence[tuple[str, int]], kind: PrivacyKind) -> None:
        pieces: dict[int, str] = {}
        for letter, number in letters:
            pieces[number] = pieces.get(number, "") + letter
        for piece in pieces.values():
            self.add(piece, kind, "".join(pieces.values()))

    def spans(self, text: str) -> list[PrivateSpan]:
        """Returns the private parts of a text in order, without overlap."""
        if text not in self._spans:
            self._spans[text] = self.detectors.without_overlap(self._all_spans(text))
        return self._spans[text]

    def _all_spans(self, text: str) -> Iterator[PrivateSpan]:
        detected = self._detected.get(text)
        if detected is None:
            detected = self.detectors.find(text)
        yield from detected
        for secret in self.kinds:
            yield from self._same(secret, text)
        for match in _HIDDEN.finditer(text):
            yield PrivateSpan(*match.span(), "password", "secret_field", 1.0)

    def _same(self, secret: str, text: str) -> Iterator[PrivateSpan]:
        """Yields the occurrences of a secret in a text, even if encoded, split or cut off."""
        kind = self.kinds[secret]
        whole = False
        for match in _written(secret, bounded=kind in _LISTED).finditer(text):
            whole = True
            yield PrivateSpan(*match.span(), kind, "same_text", 1.0, secret)
        if not whole and kind not in _LISTED and (part := _part_of(secret, text)):
            yield PrivateSpan(*part, kind, "same_text", 0.7, secret)

    def recognised_spans(self, text: str) -> list[PrivateSpan]:
        """Returns the private parts of a line that was recognised in a screenshot.

        If the line contains a secret with misread letters, the whole line is private.
        """
        if text not in self._recognised_spans:
            self._recognised_spans[text] = self._find_recognised_spans(text)
        return self._recognised_spans[text]

    def _find_recognised_spans(self, text: str) -> list[PrivateSpan]:
        spans = self.detectors.find_in_recognised(text, self.spans(text))
        rest = ""
        place = 0
        for span in spans:
            rest += text[place : span.start]
            place = span.end
        rest += text[place:]
        for secret, kind in self.kinds.items():
            if _misread(folded(secret), folded(rest), bounded=kind in _LISTED):
                return [*spans, PrivateSpan(0, len(text), kind, "read", 0.8, secret)]
        return spans

    def span_over_two_lines(self, above: str, below: str) -> PrivateSpan | None:
        """Returns a secret that begins in the line `above` and ends in `below`, or None."""
        folded_both = folded(above + below)
        folded_above = folded(above)
        folded_below = folded(below)
        for secret, kind in self.kinds.items():
            sought = folded(secret)
            if sought in folded_both and sought not in folded_above and sought not in folded_below:
                return PrivateSpan(0, len(above), kind, "read", 0.7, secret)
        for span in self.detectors.find_in_recognised(above + below):
            if span.kind in _CHECKED and span.start < len(above) < span.end:
                return span
        return None

    def clean(self, text: str) -> str:
        """Returns the text with placeholders for the parts that the settings remove."""
        pieces = list[str]()
        place = 0
        for span in self.spans(text):
            if self.detectors.settings.removes(span.kind):
                secret = span.secret or text[span.start : span.end]
                pieces += (text[place : span.start], self._placeholder(span.kind, secret))
                place = span.end
        return "".join((*pieces, text[place:]))

    def _placeholder(self, kind: PrivacyKind, secret: str) -> str:
        """Returns `<email>` for the first e-mail address, `<email-2>` for the second, and so on."""
        number = self._number(kind, secret)
        if number == 1 or kind == "password":
            return f"<{kind}>"
        return f"<{kind}-{number}>"

    def _number(self, kind: PrivacyKind, secret: str) -> int:
        key = (kind, folded(secret))
        if key not in self._numbers:
            numbers_of_kind = {
                number for (other, _), number in self._numbers.items() if other == kind
            }
            self._numbers[key] = len(numbers_of_kind) + 1
        return self._numbers[key]


def folded(text: str) -> str:
    """Returns a text in a form that is not changed by typical mistakes of text recognition.

    White space is removed, letters become lower case, and characters that look alike become equal.
    """
    return "".join(text.split()).casefold().translate(_ALIKE)


@lru_cache(4096)
def _written(secret: str, *, bounded: bool) -> re.Pattern[str]:
    """Returns a regular expression that also finds a secret in URLs, in HTML, or split over lines.

    Case is ignored.

    Args:
        bounded: whether only whole words match.
    """
    pieces = list[str]()
    gap = ""
    for letter in secret:
        if letter.isspace():
            gap = r"(?:[\s+\u00ad\u200b]|%20|&nbsp;)*"
            continue
        forms = {letter, quote(letter, safe=""), escape(letter)}
        pieces += (gap, f"(?:{'|'.join(map(re.escape, sorted(forms)))})")
        gap = r"[\s\u00ad\u200b]*"
    whole = "".join(pieces)
    if bounded:
        whole = rf"(?<!\w){whole}(?!\w)"
    return re.compile(whole, re.IGNORECASE)


def _part_of(secret: str, text: str) -> tuple[int, int] | None:
    """Returns the start and the end of the longest part of a secret in a text.

    Returns None if no part is long enough to reveal the secret.
    """
    low = text.lower()
    for piece in _pieces(secret):
        if piece in low:
            match = SequenceMatcher(None, secret.lower(), low, autojunk=False).find_longest_match()
            return match.b, match.b + match.size
    return None


@lru_cache(4096)
def _pieces(secret: str) -> tuple[str, ...]:
    """Returns the shortest parts that reveal a secret. A short secret has no such parts."""
    size = max(_SHORTEST_PART, round(_TELLING_SHARE * len(secret)))
    sought = secret.lower()
    if size >= len(secret):
        return ()
    return tuple(sought[start : start + size] for start in range(len(sought) - size + 1))


def _misread(secret: str, text: str, *, bounded: bool) -> bool:
    """Whether a recognised text contains a misread secret, or a long part of a secret.

    Args:
        secret: the secret, as returned by `folded`.
        text: the recognised text, as returned by `folded`.
        bounded: whether only the whole secret counts.
    """
    if _nearly_in(secret, text):
        return True
    is_part = len(text) >= _SHORTEST_PART and text in secret
    return not bounded and (is_part or _part_of(secret, text) is not None)


def _nearly_in(secret: str, text: str) -> bool:
    """Whether a text contains a secret, with at most one wrong character in eight."""
    if secret in text:
        return True
    size = len(secret)
    allowed = size // 8
    if allowed == 0:
        return False
    for start in range(len(text) - size + 1):
        wrong = sum(map(ne, secret, text[start : start + size]))
        if wrong <= allowed:
            return True
    return False
