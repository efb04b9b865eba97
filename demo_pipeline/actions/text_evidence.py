"""Compares typed texts with the accessibility scans, and decides the keyboard layout.

The log only says which keys were pressed, but the scans show the text in its field. The evidence
for each typed text is rated:

- *confirmed*: one of the next scans shows that a field gained the text.
- *contradicted*: the only field that changed gained another text.
- *unseen*: the scans neither confirm nor contradict the text.

A text that an input method wrote is taken from the field. A text that may be wrong is flagged as
doubtful.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from demo_pipeline.actions.action_tables import DOUBTFUL_TEXT, Action
from demo_pipeline.actions.field_texts import Edit, Field, ScanFields, edit_between, is_masked
from demo_pipeline.actions.grouping import Segmentation
from demo_pipeline.actions.keyboard_stretches import Keyboards, Locks
from demo_pipeline.actions.pinyin import may_be_pinyin
from demo_pipeline.actions.typed_text import UNKNOWN_CHARACTER
from demo_pipeline.recording.key_names import (
    LAYOUTS,
    Keyboard,
    input_method_of,
    is_english,
    keyboard_of,
)
from demo_pipeline.recording.logged_scans import LoggedScan

# Number of scans after the typing that are searched for the text. Three scans take 3 to 12 s,
# because recorders scan every 1 to 4 s.
SCANS_AFTER = 3
# A typed text of fewer than three characters must equal the text that a field gained. A longer
# typed text may be a part of the gained text.
SHORTEST_SOUGHT = 3
# Maximum number of characters that an input method may write for each typing event. Real input
# methods write fewer.
MOST_GAINED = 4
# Reason in ledger.parquet for an Enter that only ended the composition of an input method.
COMPOSITION = "composition"
# Characters that fields add to numbers, dates and telephone numbers, or remove from them.
_FORMATTING = str.maketrans(dict.fromkeys(" .,-/:()\u00a0\t\n"))
_UNKNOWN_FLAGS = frozenset({UNKNOWN_CHARACTER, "unknown_input"})
_ENTER = ["enter"]
# Types of actions that do not change the text of a field.
_HARMLESS = frozenset({"scroll", "pause"})


class TextEvidence(StrEnum):
    """Whether a scan shows a typed text."""

    CONFIRMED = "confirmed"
    CONTRADICTED = "contradicted"
    UNSEEN = "unseen"


class TextSource(StrEnum):
    """Where the text of a typing step comes from."""

    KEYS = "keys"
    FIELD = "field"


@dataclass(frozen=True, slots=True)
class TypingLanguage:
    """Language and keyboard of the person, as far as both are known without the scans.

    Attributes:
        keyboard: keyboard according to the setting `actions.keyboard_layout` or to meta.json.
        certain: whether the setting or the recorder names the layout. If so, no other layout is
            tried until the person may have switched the layout.
        input_method: language that is typed with an input method, one of `zh`, `zh-TW`, `ja`, `ko`
            and `vi`. Empty if the language needs no input method.
        accents: whether the layout is US but the language may have accents. People may then use the
            layout `us-intl`.
        unknown: whether the language is unknown.
    """

    keyboard: Keyboard
    certain: bool = False
    input_method: str = ""
    accents: bool = False
    unknown: bool = False


def typing_language(
    setting: str, usual: str | None, locale: str = "", *, named: bool = False
) -> TypingLanguage:
    """Returns the language and the keyboard of the person.

    Args:
        setting: value of the setting `actions.keyboard_layout`.
        usual: layout according to meta.json, see `Meta.usual_layout`.
        named: whether the recorder wrote the layout into meta.json.
    """
    keyboard = keyboard_of(setting, usual)
    input_method = input_method_of(locale)
    accents = keyboard.layout == "us" and not is_english(locale) and not input_method
    return TypingLanguage(
        keyboard,
        certain=setting != "auto" or (named and not keyboard.other),
        input_method=input_method,
        accents=accents,
        unknown=not locale and usual is None,
    )


@dataclass(frozen=True, slots=True)
class ChosenLayout:
    """The chosen layout of a stretch of the recording, for the summary of the stage.

    Attributes:
        first_line: first line of the stretch in the log.
        layout: a name in `LAYOUTS`.
        reason: why the layout was chosen: scans confirm a text (`confirmed`), the setting or the
            recorder names the layout (`named`), the layout is usual for the locale (`meta`), or
            `unknown`.
        confirmed: number of texts of the stretch that scans confirm.
        locks: unusual states of Caps Lock and Num Lock before the recording began.
    """

    first_line: int
    layout: str
    reason: str
    confirmed: int
    locks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Gain:
    """A text that a field gained, and the line number of the scan that shows this text."""

    text: str
    scan_event: int


class TextWitness:
    """Searches the fields of the accessibility scans for typed texts."""

    def __init__(self, fields: ScanFields) -> None:
        self._fields = fields
        self._confirmed: dict[tuple[str, int, int], int | None] = {}

    def confirming_scan(self, action: Action) -> int | None:
        """Returns the line of the first scan in which a field has gained the typed text.

        Returns None if no field gains the text in the next `SCANS_AFTER` scans.
        """
        key = (action.text or "", action.press_ms, action.end_ms)
        if key not in self._confirmed:
            self._confirmed[key] = self._find(*key)
        return self._confirmed[key]

    def _find(self, text: str, press_ms: int, end_ms: int) -> int | None:
        sought = text.strip()
        if not sought:
            return None
        before = self._fields.before(press_ms)
        for scan in self._fields.after(end_ms, SCANS_AFTER):
            for earlier, field in self._fields.pairs(before, scan):
                earlier_text = earlier.text if earlier else ""
                if field.text != earlier_text and _gained_text(sought, earlier_text, field.text):
                    return scan.event_index
        return None

    def gain(
        self, number: int, actions: Sequence[Action], *, ends_composition: bool
    ) -> _Gain | None:
        """Returns the text that a field gained by a typing action, or None if unknown.

        The last scan before the action is compared with the first scan after the action. Exactly
        one field must have changed between these scans, and no other action can have changed it.

        Args:
            number: index of the action in `actions`.
            ends_composition: whether the next action is an Enter that only ends the composition of
                an input method.
        """
        action = actions[number]
        before = self._fields.before(action.press_ms)
        later = self._fields.after(action.end_ms, 1)
        if before is None or not later:
            return None
        after = later[0]
        for other in actions[number + 1 + ends_composition :]:
            if other.press_ms < after.end_ms and not _is_harmless(other):
                return None
        field_edit = self._only_edit(before, after)
        if field_edit is None:
            return None
        field, edit = field_edit
        for other in actions[:number]:
            if other.end_ms > before.begin_ms and not _is_harmless(other, field):
                return None
        is_insertion = not edit.removed or edit.whole
        if not is_insertion or not edit.gained.strip() or is_masked(edit.gained):
            return None
        return _Gain(edit.gained.strip("\n"), after.event_index)

    def _only_edit(self, before: LoggedScan, after: LoggedScan) -> tuple[Field, Edit] | None:
        """Returns the only field whose text changed between two scans, and the change.

        Several elements that gained the same text count as one field. Returns None if no field
        changed, if several fields changed, or if a new field with a text has the focus.
        """
        edits: list[tuple[Field, Edit]] = []
        gained_texts: set[str] = set()
        for earlier, field in self._fields.pairs(before, after):
            if earlier is None and field.focused and field.text:
                return None
            if earlier is not None and earlier.text != field.text:
                edit = edit_between(earlier.text, field.text)
                edits.append((field, edit))
                gained_texts.add(edit.gained)
        return edits[-1] if len(gained_texts) == 1 else None


def _gained_text(sought: str, before: str, after: str) -> bool:
    """Returns whether a field gained the text `sought` when its text changed to `after`."""
    gained = edit_between(before, after).gained.strip()
    if sought in {gained, after.strip()} or _same_number(sought, after):
        return True
    return len(sought) >= SHORTEST_SOUGHT and after.count(sought) > before.count(sought)


def _same_number(typed: str, shown: str) -> bool:
    """Returns whether a field shows the typed number in another format, such as 2.0 for 2."""
    try:
        return float(typed) == float(shown)
    except ValueError:
        return False


def _is_harmless(action: Action, field: Field | None = None) -> bool:
    """Returns whether an action, such as a scroll, cannot change the text of any field.

    A left click into `field` does not change a text either.
    """
    if action.action_type in _HARMLESS:
        return True
    if action.action_type == "hotkey":
        return "modifier_tap" in action.flags or set(action.keys) <= {"win", "ctrl", "space"}
    if field is None or action.action_type != "click" or action.button != "left":
        return False
    left, top, width, height = field.box
    x = action.x
    y = action.y
    if x is None or y is None:
        return False
    return left <= x < left + width and top <= y < top + height


def contradicts(gained: str, typed: str) -> bool:
    """Returns whether a field gained a text that typing `typed` cannot explain.

    The field may have completed, shortened or reformatted the typed text. For example, differences
    in number format, date format and case are ignored.
    """
    field = gained.translate(_FORMATTING).casefold()
    keys = typed.translate(_FORMATTING).casefold()
    if not field or not keys:
        return field != keys
    return not (keys.startswith(field) or field.startswith(keys) or keys in field)


class TextReader:
    """Uses the scans to choose the keyboard layouts of a recording and to rate each typed text.

    Attributes:
        layouts: the layout of each stretch of the recording, with the reason. Set by `read`.
    """

    def __init__(
        self,
        language: TypingLanguage,
        segment: Callable[[Keyboards], Segmentation],
        witness: TextWitness,
        *,
        keypad: bool = False,
    ) -> None:
        """Creates a reader for a recording.

        Args:
            segment: builds the actions of the recording with the given keyboards.
            witness: searches for texts in the scans.
            keypad: whether a key of the keypad was pressed, so that Num Lock matters.
        """
        self._language = language
        self._segment = segment
        self._witness = witness
        self._keypad = keypad
        self._read: dict[tuple[str, Locks], Segmentation] = {}
        self._stretches = Keyboards.of(language.keyboard)
        self._scores: dict[tuple[str, Locks], list[int]] = {}
        self.layouts: tuple[ChosenLayout, ...] = ()

    def read(self) -> Segmentation:
        """Returns the actions of the recording, with the evidence for each typed text.

        Texts that may be wrong are flagged.
        """
        usual = self._segment(self._stretches)
        self._stretches = self._stretches.switched_at(usual.switch_lines)
        if len(self._stretches.stretches) > 1:
            usual = self._segment(self._stretches)
        self._read[self._language.keyboard.layout, Locks()] = usual
        keyboards = self._chosen_keyboards(usual)
        result = usual if keyboards == self._stretches else self._segment(keyboards)
        self._judge(result, keyboards)
        return result

    def _reading(self, layout: str, locks: Locks) -> Segmentation:
        """Returns the actions that result from one layout and one lock state for the whole log."""
        if (layout, locks) not in self._read:
            keyboard = _keyboard(layout)
            self._read[layout, locks] = self._segment(self._stretches.everywhere(keyboard, locks))
        return self._read[layout, locks]

    def _scores_of(self, layout: str, locks: Locks) -> list[int]:
        """Returns, for each stretch, how many characters scans confirm with this layout."""
        if (layout, locks) not in self._scores:
            scores = [0] * len(self._stretches.stretches)
            for action in _typing(self._reading(layout, locks).actions):
                if self._witness.confirming_scan(action) is not None:
                    number = self._stretches.number_at(action.first_event)
                    scores[number] += len((action.text or "").strip())
            self._scores[layout, locks] = scores
        return self._scores[layout, locks]

    def _chosen_keyboards(self, usual: Segmentation) -> Keyboards:
        """Chooses a layout for each stretch, so that scans confirm as many characters as possible.

        `usual` contains the actions with the layout in the settings or meta.json. This layout is
        chosen unless another layout is better.
        """
        if all(self._is_settled(action) for action in _typing(usual.actions)):
            return self._stretches
        layouts = [self._language.keyboard.layout]
        if not self._language.certain or len(self._stretches.stretches) > 1:
            # The usual layout comes first, because the first of equally good layouts is chosen.
            layouts = list(dict.fromkeys([*layouts, *LAYOUTS]))
        all_locks = [Locks(), Locks(caps=True)]
        if self._keypad:
            all_locks += [Locks(num=False), Locks(caps=True, num=False)]
        best_locks = max(all_locks, key=partial(self._best_score, layouts))
        scores = {layout: self._scores_of(layout, best_locks) for layout in layouts}
        stretches = []
        for number, stretch in enumerate(self._stretches.stretches):
            best = max(layouts, key=lambda layout: scores[layout][number])
            keyboard = stretch.keyboard if best == layouts[0] else _keyboard(best)
            stretches.append(replace(stretch, keyboard=keyboard))
        return Keyboards(tuple(stretches), best_locks)

    def _best_score(self, layouts: Sequence[str], locks: Locks) -> int:
        """Returns how many characters scans confirm if each stretch has its best layout."""
        scores_of_layouts = [self._scores_of(layout, locks) for layout in layouts]
        return sum(map(max, zip(*scores_of_layouts, strict=True)))

    def _is_settled(self, action: Action) -> bool:
        """Returns whether a text proves the layout.

        A text proves the layout if a scan confirms the text and none of its keys is unknown.
        """
        is_complete = _UNKNOWN_FLAGS.isdisjoint(action.flags)
        return is_complete and self._witness.confirming_scan(action) is not None

    def _judge(self, result: Segmentation, keyboards: Keyboards) -> None:
        """Rates the evidence for each typed text, and flags texts that may be wrong.

        Also drops each Enter that only ended the composition of an input method.
        """
        composition_enters: list[Action] = []
        gained_texts: dict[int, str] = {}
        for number, action in enumerate(result.actions):
            if action.action_type != "type":
                continue
            stretch = keyboards.number_at(action.first_event)
            action.keyboard_layout = keyboards.stretches[stretch].keyboard.layout
            action.text_source = TextSource.KEYS
            action.text_evidence = TextEvidence.UNSEEN
            confirming_scan = self._witness.confirming_scan(action)
            if confirming_scan is not None:
                action.text_evidence = TextEvidence.CONFIRMED
                action.text_scan_event = confirming_scan
                continue
            enter = self._composition_enter(number, result.actions)
            gain = self._witness.gain(number, result.actions, ends_composition=enter is not None)
            if gain is None or not contradicts(gain.text, action.text or ""):
                continue
            action.text_scan_event = gain.scan_event
            if _is_composed(gain.text, action):
                gained_texts[number] = gain.text
                if enter is not None:
                    composition_enters.append(enter)
            else:
                action.text_evidence = TextEvidence.CONTRADICTED
        self._doubt(result, keyboards, frozenset(gained_texts))
        for number, text in gained_texts.items():
            action = result.actions[number]
            action.text = text
            action.text_source = TextSource.FIELD
            action.flags = [flag for flag in action.flags if flag != DOUBTFUL_TEXT]
            action.text_evidence = TextEvidence.CONFIRMED
        for enter in composition_enters:
            result.actions.remove(enter)
            result.reasons.update(dict.fromkeys(enter.events, COMPOSITION))
        for number, action in enumerate(result.actions):
            action.action_index = number

    def _composition_enter(self, number: int, actions: Sequence[Action]) -> Action | None:
        """Returns the Enter after a text if it only ends the composition of an input method.

        Enter ends Japanese and Bopomofo compositions, and Pinyin compositions that no space or
        digit has ended. In Korean, every Enter has an effect of its own. Returns None if there is
        no such Enter.
        """
        if number + 1 >= len(actions) or actions[number + 1].keys != _ENTER:
            return None
        text = actions[number].text or ""
        ends = {"ja": True, "zh-TW": True, "zh": text[-1:].isalpha()}
        return actions[number + 1] if ends.get(self._language.input_method, False) else None

    def _doubt(
        self, result: Segmentation, keyboards: Keyboards, from_field: frozenset[int]
    ) -> None:
        """Flags texts that may be wrong, and removes the flag where scans confirm the keyboard.

        `from_field` has the indexes of actions whose text is taken from a field.
        """
        support = _Support(result.actions, keyboards, from_field)
        for number, action in enumerate(result.actions):
            if action.action_type != "type" or number in from_field:
                continue
            flags = set(action.flags)
            was_doubtful = DOUBTFUL_TEXT in flags
            is_incomplete = bool(flags & _UNKNOWN_FLAGS)
            if action.text_evidence == TextEvidence.CONFIRMED:
                is_doubtful = was_doubtful and is_incomplete
            elif action.text_evidence == TextEvidence.CONTRADICTED:
                is_doubtful = True
            else:
                stretch = keyboards.number_at(action.first_event)
                is_guess = stretch not in support.guesses_confirmed
                is_doubtful = (was_doubtful and (is_guess or is_incomplete)) or (
                    self._may_be_other(action, result, keyboards, support)
                )
            flags.discard(DOUBTFUL_TEXT)
            if is_doubtful:
                flags.add(DOUBTFUL_TEXT)
            action.flags = sorted(flags)
            enter = self._composition_enter(number, result.actions)
            if is_doubtful and enter is not None:
                enter.flags = sorted({*enter.flags, DOUBTFUL_TEXT})
        self.layouts = tuple(self._described(keyboards, support))

    def _may_be_other(
        self, action: Action, result: Segmentation, keyboards: Keyboards, support: "_Support"
    ) -> bool:
        """Returns whether a text that no scan shows may be wrong.

        There are four cases:

        - An input method may have written another text.
        - The layout may have been switched, and no scan confirms a text typed since then.
        - Caps Lock may have been off.
        - The same keys give another text with another plausible layout.
        """
        text = action.text or ""
        if not text.strip():
            return False
        stretch = keyboards.number_at(action.first_event)
        is_latin = any(map(str.isalpha, text)) and text.isascii()
        if self._language.input_method and is_latin and stretch not in support.latin:
            return True
        if self._language.unknown and stretch not in support.latin and may_be_pinyin(text):
            return True
        if keyboards.stretches[stretch].switched and not support.confirmed[stretch]:
            return not result.layout_lines.isdisjoint(action.events)
        if keyboards.locks.caps and is_latin and stretch not in support.mixed_case:
            return True
        for layout in self._plausible(stretch, keyboards):
            reading = self._reading(layout, keyboards.locks)
            if _text_of(reading.actions, action) != text:
                return True
        return False

    def _plausible(self, stretch: int, keyboards: Keyboards) -> Iterator[str]:
        """Yields the layouts that the person may have in a stretch instead of the chosen layout.

        Candidates are the usual layout, the US layout and, for languages with accents,
        US-International. A candidate is left out if scans confirm fewer characters with it than
        with the chosen layout. The US layout is also left out if AltGr was used.
        """
        usual = self._language.keyboard
        chosen = keyboards.stretches[stretch].keyboard.layout
        if self._language.certain:
            return
        others = {usual.layout, "us"}
        if self._language.accents:
            others.add("us-intl")
        chosen_score = self._scores_of(chosen, keyboards.locks)[stretch]
        reading = self._reading(chosen, keyboards.locks)
        altgr_stretches = {self._stretches.number_at(line) for line in reading.altgr_lines}
        for layout in sorted(others - {chosen}):
            is_refuted = self._scores_of(layout, keyboards.locks)[stretch] < chosen_score
            lacks_altgr = layout == "us" and stretch in altgr_stretches
            if not is_refuted and not lacks_altgr:
                yield layout

    def _described(self, keyboards: Keyboards, support: "_Support") -> Iterator[ChosenLayout]:
        """Yields the chosen layout of each stretch, with the reason for the choice."""
        locks = []
        if keyboards.locks.caps:
            locks.append("Caps Lock on")
        if not keyboards.locks.num:
            locks.append("Num Lock off")
        for number, stretch in enumerate(keyboards.stretches):
            reason = "meta"
            if support.confirmed[number]:
                reason = "confirmed"
            elif stretch.switched or stretch.keyboard.other:
                reason = "unknown"
            elif self._language.certain:
                reason = "named"
            yield ChosenLayout(
                stretch.first_line,
                stretch.keyboard.layout,
                reason,
                support.confirmed[number],
                tuple(locks) if not number else (),
            )


class _Support:
    """Facts about each stretch that are known from its confirmed texts.

    These facts help to decide whether a text that no scan shows may be wrong.

    Attributes:
        confirmed: number of confirmed texts in each stretch.
        guesses_confirmed: indexes of stretches with a confirmed text that depends on the layout.
        latin: indexes of stretches with confirmed Latin letters and without any text that an input
            method wrote.
        mixed_case: indexes of stretches with a confirmed text in lower and upper case. Such a
            text proves the state of Caps Lock.
    """

    def __init__(
        self, actions: Sequence[Action], keyboards: Keyboards, from_field: frozenset[int]
    ) -> None:
        self.confirmed = [0] * len(keyboards.stretches)
        self.guesses_confirmed: set[int] = set()
        self.latin: set[int] = set()
        self.mixed_case: set[int] = set()
        composed: set[int] = set()
        for number, action in enumerate(actions):
            stretch = keyboards.number_at(action.first_event)
            if number in from_field:
                composed.add(stretch)
            if action.text_evidence != TextEvidence.CONFIRMED:
                continue
            text = action.text or ""
            self.confirmed[stretch] += 1
            if DOUBTFUL_TEXT in action.flags and _UNKNOWN_FLAGS.isdisjoint(action.flags):
                self.guesses_confirmed.add(stretch)
            if text.isascii() and sum(map(str.isalpha, text)) >= SHORTEST_SOUGHT:
                self.latin.add(stretch)
            if text.lower() != text != text.upper():
                self.mixed_case.add(stretch)
        self.latin -= composed


def _typing(actions: Sequence[Action]) -> Iterator[Action]:
    """Yields the typing actions."""
    return (action for action in actions if action.action_type == "type")


def _keyboard(layout: str) -> Keyboard:
    """Returns the keyboard with the layout of this name."""
    return Keyboard(next(name for name in LAYOUTS if name == layout))


def _is_composed(gained: str, action: Action) -> bool:
    """Returns whether an input method may have written the text that a field gained."""
    is_foreign = any(char.isalpha() and not char.isascii() for char in gained)
    return is_foreign and len(gained) <= MOST_GAINED * len(action.events)


def _text_of(actions: Sequence[Action], action: Action) -> str:
    """Returns the text that the keys of an action would type with another layout.

    `actions` were built with the other layout. Hotkeys are written in brackets.
    """
    events = set(action.events)
    text = ""
    for other in actions:
        if not events.intersection(other.events):
            continue
        if other.action_type == "type":
            text += other.text or ""
        else:
            text += f"[{'+'.join(other.keys)}]"
    return text


def evidence_counts(actions: Sequence[Action]) -> Mapping[str, int]:
    """Counts typed texts by the value of `text_evidence`."""
    counts = dict.fromkeys(map(str, TextEvidence), 0)
    for action in _typing(actions):
        if action.text_evidence:
            counts[str(action.text_evidence)] += 1
    return counts
