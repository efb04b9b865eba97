"""The secrets of one demonstration: found wherever they stand, in whichever writing, and replaced.

Belongs here: what is known to be private after all texts were looked at, the writings in which the
same is seen elsewhere (in a URL, over two lines, cut off, misread), and its placeholder.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache
from html import escape
from typing import Any
from urllib.parse import quote

from demo_pipeline.observation.trees.secret_fields import PASSWORD
from demo_pipeline.privacy.detectors import Detectors, PrivateSpan, joined_texts
from demo_pipeline.settings import PrivacyKind

_SHORTEST = 4  # characters of a text that is looked for elsewhere; shorter ones stand in words
_LISTED = frozenset({"word", "expression"})  # found by their expression wherever they stand
_CHECKED = frozenset({"card", "iban"})  # whose digits say that pieces belong together
_PART, _SHORTEST_PART = 0.6, 8  # share and characters of a secret that give it away when cut off
_BREAKS = frozenset({"click", "double_click", "right_click", "drag"})
_HIDDEN = re.compile(re.escape(PASSWORD))
_MOST_TYPED = 2000  # characters that are looked at together
_MOST_TYPINGS = 8  # a card in four fields, with its tabs
# Letters that a reader takes for each other at 11 pixels.
_ALIKE = str.maketrans("0l1i|5$8zq", "oiiiissb2g")


@dataclass
class PrivateTexts:
    """What is private in a demonstration.

    Attributes:
        detectors: what is looked for.
        kinds: secret, or a piece of one → kind, in the order in which they were found.
    """

    detectors: Detectors
    kinds: dict[str, PrivacyKind] = field(default_factory=dict)
    _numbers: dict[tuple[PrivacyKind, str], int] = field(default_factory=dict)
    _detected: dict[str, Sequence[PrivateSpan]] = field(default_factory=dict)
    _found: dict[str, list[PrivateSpan]] = field(default_factory=dict)
    _read: dict[str, list[PrivateSpan]] = field(default_factory=dict)

    def learn(self, texts: Sequence[str]) -> None:
        """Note the secrets in texts that were not seen yet."""
        self._detected |= dict.fromkeys(texts, ())
        for text in self.detectors.suspects(texts):
            self._detected[text] = self.detectors.find(text)
            for span in self._detected[text]:
                self.add(text[span.start : span.end], span.kind)

    def private(self, texts: Sequence[str]) -> set[str]:
        """Those of the learned texts that have something private."""
        joined = joined_texts(texts)
        low = joined_texts(map(str.lower, texts))
        found = {text for text in texts if self._detected[text] or PASSWORD in text}
        for secret, kind in self.kinds.items():
            written = _written(secret, bounded=kind in _LISTED)
            if written.search(joined) or any(piece in low for piece in _pieces(secret)):
                found |= {text for text in texts if any(self._same(secret, text))}
        return found

    def add(self, secret: str, kind: PrivacyKind, whole: str = "") -> None:
        """Note a secret, or a piece of the secret `whole`; its lines are pieces of it, too."""
        number = self._number(kind, whole or secret)
        for piece in {secret: 0, **dict.fromkeys(map(str.strip, secret.splitlines()))}:
            if len(piece) >= _SHORTEST:
                self.kinds.setdefault(piece, kind)
                self._numbers.setdefault((kind, folded(piece)), number)
        self._found.clear()
        self._read.clear()

    def learn_typed(self, actions: Iterable[Mapping[str, Any]]) -> None:
        """Note the pieces of secrets that a rest of the hand, or a key, parts into several steps.

        Args:
            actions: contents of action.json, in order.
        """
        letters = list[tuple[str, int]]()
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
        """Look at the last typings together, from each of them on: those before may be apart."""
        typings = sorted({number for _, number in letters})[-_MOST_TYPINGS:-1]
        for first in typings:
            last = [one for one in letters if one[1] >= first]
            for kept in (last, [one for one in last if not one[0].isspace()]):
                text = "".join(letter for letter, _ in kept)
                for span in self.detectors.find(text):
                    if kept is last or span.kind in _CHECKED:
                        self._add_pieces(kept[span.start : span.end], span.kind)

    def _add_pieces(self, letters: Sequence[tuple[str, int]], kind: PrivacyKind) -> None:
        pieces: dict[int, str] = {}
        for letter, number in letters:
            pieces[number] = pieces.get(number, "") + letter
        for piece in pieces.values():
            self.add(piece, kind, "".join(pieces.values()))

    def spans(self, text: str) -> list[PrivateSpan]:
        """The private parts of a text in order, without overlap."""
        if text not in self._found:
            known = self._detected.get(text)
            found = self.detectors.find(text) if known is None else [*known]
            found += [span for secret in self.kinds for span in self._same(secret, text)]
            found += [
                PrivateSpan(*match.span(), "password", "secret_field", 1.0)
                for match in _HIDDEN.finditer(text)
            ]
            self._found[text] = self.detectors.without_overlap(found)
        return self._found[text]

    def _same(self, secret: str, text: str) -> Iterator[PrivateSpan]:
        """Yield where a known secret stands in a text, also written otherwise, or cut off."""
        kind = self.kinds[secret]
        whole = False
        for match in _written(secret, bounded=kind in _LISTED).finditer(text):
            whole = True
            yield PrivateSpan(*match.span(), kind, "same_text", 1.0, secret)
        if not whole and kind not in _LISTED and (part := _part_of(secret, text)):
            yield PrivateSpan(*part, kind, "same_text", 0.7, secret)

    def spans_read(self, text: str) -> list[PrivateSpan]:
        """The same for a line that was read from a picture, where letters may be wrong.

        A part that only differs by what readers get wrong takes the whole line along.
        """
        if text not in self._read:
            self._read[text] = self._spans_read(text)
        return self._read[text]

    def _spans_read(self, text: str) -> list[PrivateSpan]:
        found = self.detectors.find_read(text, self.spans(text))
        places = [0, *(place for span in found for place in span[:2]), len(text)]
        rest = ""
        for start, end in zip(places[::2], places[1::2], strict=True):
            rest += text[start:end]
        for secret, kind in self.kinds.items():
            if _misread(folded(secret), folded(rest), bounded=kind in _LISTED):
                return [*found, PrivateSpan(0, len(text), kind, "read", 0.8, secret)]
        return found

    def parted(self, above: str, below: str) -> PrivateSpan | None:
        """What is private in two lines, one below the other, and in neither alone."""
        both = folded(above + below)
        first = folded(above)
        second = folded(below)
        for secret, kind in self.kinds.items():
            sought = folded(secret)
            if sought in both and sought not in first and sought not in second:
                return PrivateSpan(0, len(above), kind, "read", 0.7, secret)
        for span in self.detectors.find_read(above + below):
            if span.kind in _CHECKED and span.start < len(above) < span.end:
                return span
        return None

    def clean(self, text: str) -> str:
        """The text with a placeholder for each part that must not leave."""
        pieces = list[str]()
        place = 0
        for span in self.spans(text):
            if self.detectors.settings.removes(span.kind):
                secret = span.secret or text[span.start : span.end]
                pieces += (text[place : span.start], self._placeholder(span.kind, secret))
                place = span.end
        return "".join((*pieces, text[place:]))

    def _placeholder(self, kind: PrivacyKind, secret: str) -> str:
        """`<email>`, and for the next one `<email-2>`."""
        number = self._number(kind, secret)
        return f"<{kind}>" if number == 1 or kind == "password" else f"<{kind}-{number}>"

    def _number(self, kind: PrivacyKind, secret: str) -> int:
        same = (kind, folded(secret))
        if same not in self._numbers:
            known = {number for (other, _), number in self._numbers.items() if other == kind}
            self._numbers[same] = len(known) + 1
        return self._numbers[same]


def folded(text: str) -> str:
    """A text without what readers of pictures get wrong: spaces, case, letters that look alike."""
    return "".join(text.split()).casefold().translate(_ALIKE)


@lru_cache(4096)
def _written(secret: str, *, bounded: bool) -> re.Pattern[str]:
    """The expression for a secret in any case, in URLs and HTML, and over several lines."""
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
    return re.compile(rf"(?<!\w){whole}(?!\w)" if bounded else whole, re.IGNORECASE)


def _part_of(secret: str, text: str) -> tuple[int, int] | None:
    """Where the longest part of a secret stands in a text, if it gives the secret away."""
    low = text.lower()
    for piece in _pieces(secret):
        if piece in low:
            match = SequenceMatcher(None, secret.lower(), low, autojunk=False).find_longest_match()
            return match.b, match.b + match.size
    return None


@lru_cache(4096)
def _pieces(secret: str) -> tuple[str, ...]:
    """The shortest parts of a secret that give it away; none of a short one."""
    size = max(_SHORTEST_PART, round(_PART * len(secret)))
    sought = secret.lower()
    if size >= len(secret):
        return ()
    return tuple(sought[at : at + size] for at in range(len(sought) - size + 1))


def _misread(secret: str, text: str, *, bounded: bool) -> bool:
    """Whether a folded text has a secret but for single letters, or a part that gives it away."""
    if _nearly_in(secret, text):
        return True
    is_part = len(text) >= _SHORTEST_PART and text in secret
    return not bounded and (is_part or _part_of(secret, text) is not None)


def _nearly_in(secret: str, text: str) -> bool:
    """Whether a secret is in a text, but for one letter in eight."""
    if secret in text:
        return True
    allowed = len(secret) // 8
    size = len(secret)
    return allowed > 0 and any(
        sum(one != other for one, other in zip(secret, text[start:], strict=False)) <= allowed
        for start in range(len(text) - size + 1)
    )
