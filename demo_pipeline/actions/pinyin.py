"""Recognises text that may be Pinyin, which an input method turns into Chinese characters.

Used only if neither the locale nor an accessibility scan shows the language of the person.
"""

import re

# Minimum number of syllables of a Pinyin text (chosen by hand). Fewer syllables may be a
# coincidence: "note" could be two Pinyin syllables, and "banana" three.
FEWEST_SYLLABLES = 4
_SYLLABLE = re.compile(
    r"""
    (?:[bpmf]? (?:a|o|ai|ei|ao|ou|an|en|ang|eng)
      |[bpm] (?:i|ie|iao|in|ian|ing|u) |fu |m(?:iu|e)
      |[dt] (?:a|e|i|u|ai|ei|ao|ou|an|ang|eng|ong|ie|iao|ian|ing|uo|ui|uan|un) |diu
      |[nl] (?:a|e|i|u|v|ai|ei|ao|ou|an|ang|eng|ong|ie|iao|iu|ian|in|iang|ing|uo|uan|ve|ue) |nen|lia
      |[gkh] (?:a|e|u|ai|ei|ao|ou|an|en|ang|eng|ong|ua|uo|uai|ui|uan|un|uang)
      |[jqx] (?:i|ia|ie|iao|iu|ian|in|iang|ing|iong|u|ue|uan|un)
      |(?:zh|ch|sh|[rzcs]) (?:a|e|i|u|ai|ei|ao|ou|an|en|ang|eng|ong|uo|ui|uan|un)
      |(?:zh|ch|sh) (?:ua|uai|uang)
      |y (?:a|e|i|o|u|ao|ou|an|in|ang|ing|ong|ue|uan|un)
      |w (?:a|o|u|ai|ei|an|en|ang|eng)
      |er
    )""",
    re.VERBOSE,
)
_WORDS = re.compile(r"[a-z]+(?:[ \d]+[a-z]+)*[ \d]*")


def may_be_pinyin(text: str) -> bool:
    """Returns whether a text consists of at least `FEWEST_SYLLABLES` Pinyin syllables."""
    if _WORDS.fullmatch(text) is None:
        return False
    syllables = 0
    for word in re.findall("[a-z]+", text):
        count = _fewest_syllables(word)
        if count is None:
            return False
        syllables += count
    return syllables >= FEWEST_SYLLABLES


def _fewest_syllables(word: str) -> int | None:
    """Returns the minimum number of Pinyin syllables that form a word, or None if impossible."""
    fewest: list[int | None] = [0] + [None] * len(word)
    for end in range(1, len(word) + 1):
        for start in range(max(0, end - 6), end):
            before = fewest[start]
            if before is None or _SYLLABLE.fullmatch(word[start:end]) is None:
                continue
            count = fewest[end]
            fewest[end] = before + 1 if count is None else min(count, before + 1)
    return fewest[len(word)]
