"""The keyboard layout that is usual for a locale, and which characters it changes.

Belongs here: languages and countries as data. Layouts with a table are in key_names.py.
"""

import re

from demo_pipeline.recording.key_names import KeyboardLayout, differing_characters

_LOCALE = re.compile(r"([A-Za-z]{2,3})(?:[-_]([A-Za-z]{4}))?(?:[-_]([A-Za-z]{2}|\d{3}))?([.@-].*)?")
_UK_COUNTRIES = frozenset({"GB", "UK", "IE"})
# Languages of which the usual keyboard is the US one, apart from methods to enter other scripts.
_US_LANGUAGES = frozenset({"zh", "ko", "nl", "pl", "vi", "id", "ms", "fil", "hi"})
# Latin keyboards on which letters are mostly those of the US one, and punctuation is not.
_OTHER_PUNCTUATION = frozenset(
    {
        *{"de", "es", "pt", "it", "sv", "da", "nb", "nn", "no", "fi", "is", "cs", "sk", "hu"},
        *{"tr", "ro", "hr", "sl", "et", "lv", "lt", "ca", "gl", "eu", "sq", "mt", "ja"},
    }
)
# Keyboards on which letters or unshifted digits differ too.
_OTHER_LETTERS = frozenset(
    {
        *{"fr", "ru", "uk", "bg", "be", "sr", "mk", "el", "he", "ar", "fa", "ur", "th", "ka"},
        *{"hy", "kk", "mn"},
    }
)
OTHER_PUNCTUATION, OTHER_LETTERS = "other punctuation", "other letters"


def layout_of_locale(locale: str) -> str | None:
    """`us`, `uk`, `OTHER_PUNCTUATION` or `OTHER_LETTERS`; None if nothing is known of it."""
    match = _LOCALE.fullmatch(locale)
    if match is None:
        return None
    language, country = match[1].lower(), (match[3] or "").upper()
    if language == "en":
        return "uk" if country in _UK_COUNTRIES else "us" if country else None
    if language in _US_LANGUAGES:
        return "us"
    if language in _OTHER_LETTERS:
        return None if (language, country) == ("fr", "CA") else OTHER_LETTERS
    return OTHER_PUNCTUATION if language in _OTHER_PUNCTUATION else None


def layout_sensitive(char: str, layout: KeyboardLayout, usual: str, platform: str = "") -> bool:
    """Whether the key that types `char` with `layout` may type another one with `usual`.

    `platform` is where it was typed: the UK keyboard of a Mac is not that of Windows.
    """
    if usual == OTHER_LETTERS:
        return not char.isspace()
    if usual == OTHER_PUNCTUATION:
        return not char.isspace() and not char.isalnum()
    return char in differing_characters(layout, "uk" if usual == "uk" else "us", platform)
