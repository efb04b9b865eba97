"""Finds the private parts of a text by patterns, check digits, and the user's own lists.

The patterns for tokens of web services come from detect-secrets. phonenumbers recognises telephone
numbers, and python-stdnum verifies check digits.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from operator import attrgetter
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
_PHONE_DIGITS = re.compile(r"\d(?:\D{0,3}\d){6}")  # at least seven digits
_PHONE_FORM = re.compile(r"\+|\(\d+\)|\d[ .-]\d{2,4}[ .-]\d")  # how people write phone numbers
_DATE = re.compile(r"^(?:\d{4}[-./ ]\d{1,2}[-./ ]\d{1,2}|\d{1,2}[-./ ]\d{1,2}[-./ ]\d{4})")
# Prefixes of the tokens that detect-secrets recognises. The package takes 0.2 s to import, so it is
# only imported for texts with such a prefix.
_TOKEN_SIGN = re.compile(
    r"A3T|A[BCKS][IC]A|aws|gh[oprsu]_|github_pat_|eyJ|xox|slack", re.IGNORECASE
)
_SHORTEST_TOKEN = 16  # minimum number of characters in a token
_TOKEN_REST = re.compile(r"[A-Za-z0-9_.+/=-]*")
_GITHUB_FINE = re.compile(r"github_pat_[A-Za-z0-9_]{22,}")
# Matches a private key up to its end marker, or to the end of the text. Text recognition may have
# lost dashes and spaces of the markers. `_PEM_END` matches everything up to a lone end marker.
_PEM = re.compile(
    r"[-\u2014]*\s?BEGIN[A-Z0-9 ]*PRIVATE ?KEY.*?(?:END[A-Z0-9 ]*PRIVATE ?KEY[-\u2014]*|\Z)",
    re.DOTALL,
)
_PEM_END = re.compile(r"\A.*?(?<![A-Z])END[A-Z0-9 ]*PRIVATE ?KEY[-\u2014]*", re.DOTALL)
# Every match of a pattern or a token expression contains one of these signs. A quick search for the
# signs excludes most texts on a screen. A single expression with all signs as alternatives would
# take three times as long.
_SIGNS = [
    re.compile(sign)
    for sign in (
        *("@", "%40", "&#64;", "PRIVATE", ":[0-9A-Fa-f]{0,4}:", r"\.\d{1,3}\.\d"),
        r"\d(?:(?:\D{0,3}\d){6}|(?<=[A-Z]{2}\d)\d)",
        *("A(?:3T|[BCKS][IC]A)", "eyJ", "gh[oprsu]_", "github_pat_", r"-\d+-", "://"),
        *(r"\"\S{40}", r"'\S{40}"),
    )
]
_MAILBOX_CHARACTERS = f"{ascii_letters}{digits}._+-"
# Matches every character except a space next to `.`, `@` or `_`, because text recognition often
# adds such spaces.
_RECOGNISED_CHARACTER = re.compile(r"\S|(?<![.@_])\s(?![.@_])")

# Patterns for recognised text after all spaces are removed. They ignore check digits, because a
# misread character makes the check fail.
_MISREAD_PATTERNS: tuple[tuple[PrivacyKind, re.Pattern[str]], ...] = (
    ("card", re.compile(r"(?<!\d)[3-6]\d{15}(?!\d)")),
    ("iban", re.compile(r"(?<![A-Z0-9])[A-Z]{2}\d{18,28}(?!\d)")),
    ("aws_key", re.compile(r"[AV4]K[I1l|]A[A-Z0-9]{12,20}")),
    ("github_token", re.compile(r"gh[pousr][_-]?[A-Za-z0-9]{30,}")),
    ("jwt", re.compile(r"ey[JI1l][A-Za-z0-9_-]{12,}")),
)


class PrivateSpan(NamedTuple):
    """A private part of a text, from the character `start` to the character before `end`.

    Attributes:
        detector: name of the method that found the part.
        confidence: confidence of the detector, from 0 to 1.
        secret: the known secret to which the part belongs; empty if the part itself is the secret.
    """

    start: int
    end: int
    kind: PrivacyKind
    detector: str
    confidence: float
    secret: str = ""


_Place = tuple[int, int]


@dataclass(frozen=True)
class Detectors:
    """Finds private parts in the texts of a demonstration.

    Attributes:
        settings: the policies, and the user's own lists.
        region: ISO 3166 code of the country assumed for telephone numbers without a country code.
    """

    settings: PrivacySettings
    region: str = "US"

    def suspects(self, texts: Sequence[str]) -> list[str]:
        """Returns the texts in which `find` may find something, selected by a quick search."""
        if self.settings.words or self.settings.expressions:
            return list(texts)
        joined = joined_texts(texts)
        present_signs = [sign for sign in _SIGNS if sign.search(joined)]
        return [text for text in texts if any(sign.search(text) for sign in present_signs)]

    def find(self, text: str) -> list[PrivateSpan]:
        """Returns the private parts of a text in order, without overlap."""
        spans = list[PrivateSpan]()
        for kind, detector, confidence, find_places in _PATTERNS:
            for place in find_places(text, self.region):
                spans.append(PrivateSpan(*place, kind, detector, confidence))
        return self.without_overlap([*spans, *_tokens(text), *_listed(text, self.settings)])

    def without_overlap(self, spans: Iterable[PrivateSpan]) -> list[PrivateSpan]:
        """Returns the spans in order, with one span for each group of overlapping spans.

        If the settings remove the kind of only one of two overlapping spans, this span is kept
        unchanged. Otherwise, the longer span is kept, and extended to cover the other one.
        """
        merged: list[PrivateSpan] = []
        for span in sorted(spans, key=attrgetter("start", "end")):
            if not merged or span.start >= merged[-1].end:
                merged.append(span)
                continue
            before = merged[-1]
            kept, dropped = sorted((before, span), key=self._precedence, reverse=True)
            if self._precedence(kept)[0] == self._precedence(dropped)[0]:
                kept = kept._replace(start=before.start, end=max(before.end, span.end))
            merged[-1] = kept
        return merged

    def _precedence(self, span: PrivateSpan) -> tuple[bool, int]:
        return self.settings.removes(span.kind), span.end - span.start

    def find_in_recognised(
        self, text: str, known_spans: Iterable[PrivateSpan] = ()
    ) -> list[PrivateSpan]:
        """Returns the private parts of a line that was recognised in a screenshot.

        Because text recognition adds and drops spaces, the span of an e-mail address includes the
        word before the address. If a secret is found only after spaces are removed, the whole line
        is private.

        Args:
            known_spans: private parts that were found before, which are added to the result.
        """
        places = list[int]()
        joined = ""  # the text without the spaces that text recognition often adds
        for match in _RECOGNISED_CHARACTER.finditer(text):
            places.append(match.start())
            joined += match.group()
        spans = [*known_spans, *self.find(text)]
        for span in self.find(joined):
            start = places[span.start]
            end = places[span.end - 1] + 1
            spans.append(span._replace(start=start, end=end))
        spans = [_with_word_before(span, text) for span in spans]
        without_spaces = "".join(text.split())
        kinds = [span.kind for span in self.find(without_spaces)]
        for kind, pattern in _MISREAD_PATTERNS:
            if pattern.search(without_spaces):
                kinds.append(kind)
        located_kinds = {span.kind for span in spans}
        for kind in dict.fromkeys(kinds):
            if kind not in located_kinds:
                spans.append(PrivateSpan(0, len(text), kind, "read", 0.5))
        return self.without_overlap(spans)


def joined_texts(texts: Iterable[str]) -> str:
    """Joins texts for one search, with a separator that no pattern matches."""
    return "\0".join(texts)


def _with_word_before(span: PrivateSpan, text: str) -> PrivateSpan:
    """Extends the span of an e-mail address to the word before the address."""
    if span.kind != "email":
        return span
    before = text[: span.start].rstrip()
    return span._replace(start=len(before.rstrip(_MAILBOX_CHARACTERS)))


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
        from stdnum import iban  # noqa: PLC0415 - most texts have no account number

        words = match.group().split(" ")
        for count in range(len(words), 0, -1):  # an ordinary word may follow the number
            candidate = " ".join(words[:count])
            if iban.is_valid(candidate, check_country=False):
                yield match.start(), match.start() + len(candidate)
                break


def _ip_addresses(text: str, _region: str) -> Iterator[_Place]:
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
        is_other_number = _DATE.match(match.raw_string) or _VERSION.search(text[: match.start])
        if _PHONE_FORM.search(match.raw_string) and not is_other_number:
            yield match.start, match.end


def _private_keys(text: str, _region: str) -> Iterator[_Place]:
    if "PRIVATE" in text:
        yield from [*_places(_PEM, text)] or _places(_PEM_END, text)


# Kind, name and confidence of each detector, and its function. The function takes a text and the
# country for telephone numbers, and yields the places of private data in the text.
_PATTERNS: tuple[tuple[PrivacyKind, str, float, Callable[[str, str], Iterator[_Place]]], ...] = (
    ("email", "pattern", 0.95, _emails),
    ("card", "luhn", 0.95, _cards),
    ("iban", "mod97", 0.99, _ibans),
    ("ip_address", "pattern", 0.8, _ip_addresses),
    ("phone", "libphonenumber", 0.8, _phones),
    ("private_key", "pem", 0.99, _private_keys),
)


def _places(expression: re.Pattern[str], text: str) -> Iterator[_Place]:
    return (match.span() for match in expression.finditer(text) if match.group())


def _tokens(text: str) -> Iterator[PrivateSpan]:
    """Yields the tokens of web services with all following characters that can belong to them."""
    if len(text) < _SHORTEST_TOKEN or not _TOKEN_SIGN.search(text):
        return
    for kind, expression in _token_expressions():
        for match in expression.finditer(text):
            end = match.end()
            if rest := _TOKEN_REST.match(text, end):
                end = rest.end()
            yield PrivateSpan(match.start(), end, kind, "token", 0.95)


@cache
def _token_expressions() -> list[tuple[PrivacyKind, re.Pattern[str]]]:
    """Returns the expressions of detect-secrets for tokens of web services, each with its kind."""
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
    kinds_and_expressions = list[tuple[PrivacyKind, re.Pattern[str]]]()
    for kind, expressions in plugins.items():
        for expression in expressions:
            kinds_and_expressions.append((kind, expression))
    return kinds_and_expressions


@cache
def _word_expression(word: str) -> re.Pattern[str]:
    """Returns an expression for private words in any case and with any common separator."""
    spaced = r"(?:[\s_+.-]|%20)*".join(map(re.escape, word.split()))
    return re.compile(rf"(?<![^\W_]){spaced}(?![^\W_])", re.IGNORECASE)


def _listed(text: str, settings: PrivacySettings) -> Iterator[PrivateSpan]:
    """Yields the matches of the user's own lists of private words and expressions."""
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
