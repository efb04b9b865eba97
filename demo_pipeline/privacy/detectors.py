"""What in a text is private: patterns with check digits, tokens of services, people's own lists.

Belongs here: from a text to spans. Whether a span is replaced is decided in `redaction`. Tokens are
those of detect-secrets, telephone numbers those of phonenumbers (of libphonenumber's plans), check
digits those of python-stdnum.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from string import ascii_letters, digits
from typing import NamedTuple

from demo_pipeline.settings import PrivacyKind, PrivacySettings

_EMAIL = re.compile(
    r"[A-Za-z0-9._%+-]{1,64}(?:@|%40|&#64;)(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2,24}\b"
)
_CARD = re.compile(r"(?<![\d.-])[2-6](?:[ -]?\d){12,18}(?![\d-])")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{2,4}){2,8}(?: ?[A-Z0-9]{1,3})?\b")
_IP4 = re.compile(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)")
_IP6 = re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:])")
_VERSION = re.compile(r"(?:\bv|version|release|build|[A-Za-z]/)\s*$", re.IGNORECASE)
_PHONE_DIGITS = re.compile(r"\d(?:\D{0,3}\d){6}")  # the shortest number that is looked at
_PHONE_FORM = re.compile(r"\+|\(\d+\)|\d[ .-]\d{2,4}[ .-]\d")  # how people write one
_DATE = re.compile(r"^(?:\d{4}[-./ ]\d{1,2}[-./ ]\d{1,2}|\d{1,2}[-./ ]\d{1,2}[-./ ]\d{4})")
# The beginnings of the tokens of detect-secrets, which takes 0.2 s to import.
_TOKEN_SIGN = re.compile(
    r"A3T|A[BCKS][IC]A|aws|gh[oprsu]_|github_pat_|eyJ|xox|slack", re.IGNORECASE
)
_SHORTEST_TOKEN = 16  # characters
_TOKEN_REST = re.compile(r"[A-Za-z0-9_.+/=-]*")
_GITHUB_FINE = re.compile(r"github_pat_[A-Za-z0-9_]{22,}")
# Readers of pictures lose dashes and spaces. Without its end a key goes on to that of the text, and
# what stands before an end is a key.
_PEM = re.compile(
    r"[-\u2014]*\s?BEGIN[A-Z0-9 ]*PRIVATE ?KEY.*?(?:END[A-Z0-9 ]*PRIVATE ?KEY[-\u2014]*|\Z)",
    re.DOTALL,
)
_PEM_END = re.compile(r"\A.*?(?<![A-Z])END[A-Z0-9 ]*PRIVATE ?KEY[-\u2014]*", re.DOTALL)
# What each of the patterns above and the tokens need at least; of a screen's texts few have it. One
# alternation would take three times as long: most begin with letters that `re` seeks fast.
_SIGNS = [
    re.compile(sign)
    for sign in (
        *("@", "%40", "&#64;", "PRIVATE", ":[0-9A-Fa-f]{0,4}:", r"\.\d{1,3}\.\d"),
        r"\d(?:(?:\D{0,3}\d){6}|(?<=[A-Z]{2}\d)\d)",
        *("A(?:3T|[BCKS][IC]A)", "eyJ", "gh[oprsu]_", "github_pat_", r"-\d+-", "://"),
        *(r"\"\S{40}", r"'\S{40}"),
    )
]
_OF_NAMES = f"{ascii_letters}{digits}._+-"
_READ_LETTER = re.compile(r"\S|(?<![.@_])\s(?![.@_])")  # not a space that a reader saw at a dot

# What is left of a form when single letters were misread, so that check digits do not fit.
_READ: tuple[tuple[PrivacyKind, re.Pattern[str]], ...] = (
    ("card", re.compile(r"(?<!\d)[3-6]\d{15}(?!\d)")),
    ("iban", re.compile(r"(?<![A-Z0-9])[A-Z]{2}\d{18,28}(?!\d)")),
    ("aws_key", re.compile(r"[AV4]K[I1l|]A[A-Z0-9]{12,20}")),
    ("github_token", re.compile(r"gh[pousr][_-]?[A-Za-z0-9]{30,}")),
    ("jwt", re.compile(r"ey[JI1l][A-Za-z0-9_-]{12,}")),
)


class PrivateSpan(NamedTuple):
    """A private part of a text: characters `start` to `end`, excluded."""

    start: int
    end: int
    kind: PrivacyKind
    detector: str
    confidence: float
    secret: str = ""  # the whole of which it is a part; empty: it is the whole


_Place = tuple[int, int]


@dataclass(frozen=True)
class Detectors:
    """What is looked for in the texts of a demonstration.

    Attributes:
        settings: the lists of words and expressions.
        region: ISO 3166 code of the country whose telephone numbers need no prefix.
    """

    settings: PrivacySettings
    region: str = "US"

    def suspects(self, texts: Sequence[str]) -> list[str]:
        """Those of the texts, in order, in which `find` may find something."""
        if self.settings.words or self.settings.expressions:
            return list(texts)
        joined = joined_texts(texts)
        seen = [sign for sign in _SIGNS if sign.search(joined)]
        return [text for text in texts if any(sign.search(text) for sign in seen)]

    def find(self, text: str) -> list[PrivateSpan]:
        """The private parts of a text in order, without overlap."""
        patterns = (
            PrivateSpan(*place, kind, detector, confidence)
            for kind, detector, confidence, places in _PATTERNS
            for place in places(text, self.region)
        )
        return self.without_overlap([*patterns, *_tokens(text), *_listed(text, self.settings)])

    def without_overlap(self, found: Iterable[PrivateSpan]) -> list[PrivateSpan]:
        """The spans in order; of overlapping ones all together, as the one that says most.

        What must not leave says more than what is counted, and a longer one more than a shorter.
        """
        merged: list[PrivateSpan] = []
        for span in sorted(found, key=lambda one: (one.start, one.end)):
            if not merged or span.start >= merged[-1].end:
                merged.append(span)
                continue
            before = merged[-1]
            first, other = sorted((before, span), key=self._weight, reverse=True)
            if self._weight(first)[0] == self._weight(other)[0]:
                start = before.start
                end = max(before.end, span.end)
                first = first._replace(start=start, end=end)
            merged[-1] = first
        return merged

    def _weight(self, span: PrivateSpan) -> tuple[bool, int]:
        return self.settings.removes(span.kind), span.end - span.start

    def find_read(self, text: str, known: Iterable[PrivateSpan] = ()) -> list[PrivateSpan]:
        """The same, and what is `known`, for a line that was read from a picture.

        Spaces come and go there, above all beside dots: the word before an address goes with it,
        and the whole line with what is only found without any space.
        """
        places = [match.start() for match in _READ_LETTER.finditer(text)]
        tight = self.find("".join(text[place] for place in places))
        spaced = (
            one._replace(start=places[one.start], end=places[one.end - 1] + 1) for one in tight
        )
        found = [_with_word_before(one, text) for one in (*known, *self.find(text), *spaced)]
        joined = "".join(text.split())
        kinds = [span.kind for span in self.find(joined)]
        kinds += [kind for kind, expression in _READ if expression.search(joined)]
        seen = {one.kind for one in found}
        found += [
            PrivateSpan(0, len(text), kind, "read", 0.5)
            for kind in dict.fromkeys(kinds)
            if kind not in seen
        ]
        return self.without_overlap(found)


def joined_texts(texts: Iterable[str]) -> str:
    """One text that has whatever stands in one of them: what is not in it is in none of them."""
    return "\0".join(texts)


def _with_word_before(span: PrivateSpan, text: str) -> PrivateSpan:
    if span.kind != "email":
        return span
    before = text[: span.start].rstrip()
    return span._replace(start=len(before.rstrip(_OF_NAMES)))


def _emails(text: str, _region: str) -> Iterator[_Place]:
    if any(sign in text for sign in ("@", "%40", "&#64;")):
        yield from _places(_EMAIL, text)


def _cards(text: str, _region: str) -> Iterator[_Place]:
    for match in _CARD.finditer(text):
        from stdnum import luhn  # noqa: PLC0415 - most texts have no digits

        number = re.sub(r"\D", "", match.group())
        if len(set(number)) > 1 and luhn.is_valid(number):
            yield match.span()


def _ibans(text: str, _region: str) -> Iterator[_Place]:
    for match in _IBAN.finditer(text):
        from stdnum import iban  # noqa: PLC0415 - most texts have none

        words = match.group().split(" ")
        candidates = (" ".join(words[:count]) for count in range(len(words), 0, -1))
        for candidate in candidates:  # a word may follow it
            if iban.is_valid(candidate, check_country=False):
                yield match.start(), match.start() + len(candidate)
                break


def _addresses(text: str, _region: str) -> Iterator[_Place]:
    for start, end in (*_places(_IP4, text), *_places(_IP6, text)):
        with suppress(ValueError):
            address = ip_address(text[start:end])
            if not address.is_unspecified and not _VERSION.search(text[:start]):
                yield start, end


def _phones(text: str, region: str) -> Iterator[_Place]:
    if not (_PHONE_DIGITS.search(text) and _PHONE_FORM.search(text)):
        return
    from phonenumbers import PhoneNumberMatcher  # noqa: PLC0415 - most texts have no number

    for match in PhoneNumberMatcher(text, region):
        numbered = _DATE.match(match.raw_string) or _VERSION.search(text[: match.start])
        if _PHONE_FORM.search(match.raw_string) and not numbered:
            yield match.start, match.end


def _private_keys(text: str, _region: str) -> Iterator[_Place]:
    if "PRIVATE" in text:
        yield from [*_places(_PEM, text)] or _places(_PEM_END, text)


_PATTERNS: tuple[tuple[PrivacyKind, str, float, Callable[[str, str], Iterator[_Place]]], ...] = (
    ("email", "pattern", 0.95, _emails),
    ("card", "luhn", 0.95, _cards),
    ("iban", "mod97", 0.99, _ibans),
    ("ip_address", "pattern", 0.8, _addresses),
    ("phone", "libphonenumber", 0.8, _phones),
    ("private_key", "pem", 0.99, _private_keys),
)


def _places(expression: re.Pattern[str], text: str) -> Iterator[_Place]:
    return (match.span() for match in expression.finditer(text) if match.group())


def _tokens(text: str) -> Iterator[PrivateSpan]:
    if len(text) < _SHORTEST_TOKEN or not _TOKEN_SIGN.search(text):
        return
    for kind, expression in _token_expressions():
        for match in expression.finditer(text):
            rest = _TOKEN_REST.match(text, match.end())
            end = rest.end() if rest else match.end()
            yield PrivateSpan(match.start(), end, kind, "token", 0.95)


@cache
def _token_expressions() -> list[tuple[PrivacyKind, re.Pattern[str]]]:
    """Kind and expression of each service's tokens; imported when a text may hold one."""
    from detect_secrets.plugins.aws import AWSKeyDetector  # noqa: PLC0415
    from detect_secrets.plugins.github_token import GitHubTokenDetector  # noqa: PLC0415
    from detect_secrets.plugins.jwt import JwtTokenDetector  # noqa: PLC0415
    from detect_secrets.plugins.slack import SlackDetector  # noqa: PLC0415

    plugins: dict[PrivacyKind, Iterable[re.Pattern[str]]] = {
        "aws_key": AWSKeyDetector.denylist,
        "github_token": (*GitHubTokenDetector.denylist, _GITHUB_FINE),
        "slack_token": SlackDetector.denylist,
        "jwt": JwtTokenDetector.denylist,
    }
    return [(kind, expression) for kind, found in plugins.items() for expression in found]


@cache
def _word_expression(word: str) -> re.Pattern[str]:
    spaced = r"(?:[\s_+.-]|%20)*".join(map(re.escape, word.split()))
    return re.compile(rf"(?<![^\W_]){spaced}(?![^\W_])", re.IGNORECASE)


def _listed(text: str, settings: PrivacySettings) -> Iterator[PrivateSpan]:
    if not settings.words and not settings.expressions:
        return
    listed: dict[PrivacyKind, Iterable[re.Pattern[str]]] = {
        "word": map(_word_expression, settings.words),
        "expression": map(re.compile, settings.expressions),
    }
    for kind, expressions in listed.items():
        for expression in expressions:
            for place in _places(expression, text):
                yield PrivateSpan(*place, kind, "list", 1.0)
