"""Which step answers which entry of the truth list, and whether it says the same."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.truth.labels import Labels, Step
from benchmarks.truth.recording_log import RecordingLog
from benchmarks.truth.truth_list import Intended, TruthList

NEAR_MS = 300  # from a press to that of the step that answers it
_PLACE_TOLERANCE = 4  # canvas pixels
_KEY_SLACK_MS = 80
_REDACTED = "<password>"
_CLICKS = {
    "click": ("click", "left", 1),
    "middle_click": ("click", "middle", 1),
    "right_click": ("right_click", None, None),
    "double_click": ("double_click", None, None),
    "triple_click": ("click", "left", 3),
}
_KEY_NAMES = {
    "Control_L": "ctrl",
    "Shift_L": "shift",
    "Alt_L": "alt",
    "Super_L": "win",
    "Return": "enter",
    "Escape": "esc",
    "Next": "pagedown",
    "Prior": "pageup",
    "equal": "=",
}
_NET_EFFECT_KEYS = ("backspace",)  # held, they take back what was typed before


@dataclass
class Pairing:
    """The result; each list but `pairs` holds one line for each fault.

    Attributes:
        pairs: every entry with the step that answers it.
        hidden: actions of which the trajectory says that no screenshot shows them.
        texts_right, texts_left_out: how many typed texts are right, or in no training record.
        invented: steps that no entry explains.
    """

    pairs: list[tuple[Intended, Step]] = field(default_factory=list)
    actions_right: int = 0
    hidden: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    texts_right: int = 0
    texts_wrong: list[str] = field(default_factory=list)
    texts_left_out: int = 0


class _Pairer:
    """Goes through the truth list in the order of presses, and takes steps away."""

    def __init__(self, truth: TruthList, labels: Labels, log: RecordingLog) -> None:
        self.result = Pairing()
        self._truth = truth
        self._labels = labels
        self._log = log
        self._steps = [step for step in labels.steps if step.kind != "wait"]
        self._used: set[int] = set()
        self._presses_left: dict[int, int] = {}
        self._text_left: dict[int, str] = {}

    def run(self) -> Pairing:
        for entry in self._truth.actions:
            if entry.kind == "held":
                self._held(entry)
            else:
                self._action(entry)
        self._take_explained_steps()
        self.result.invented += [
            self._line("invented", step.press_ms, f"step {step.index} {step.kind}")
            for step in self._steps
            if step.index not in self._used
        ]
        self.result.texts_wrong += [
            f"step {index} types more than the person did" for index in self._unfinished_texts()
        ]
        return self.result

    def _action(self, entry: Intended) -> None:
        step = self._nearest(entry)
        if step is None:
            if self._is_repeated_press(entry) or self._is_rest_of_text(entry):
                return
            if any(
                abs(press_ms - entry.press_ms) <= NEAR_MS for press_ms in self._labels.hidden_ms
            ):
                self.result.hidden.append(self._line("hidden", entry.press_ms, entry.kind))
            else:
                self.result.missed.append(self._line("missed", entry.press_ms, entry.kind))
            self.result.texts_left_out += entry.kind == "type"
            return
        self._used.add(step.index)
        self._presses_left[step.index] = step.presses - 1
        self.result.pairs.append((entry, step))
        fault = _difference(entry, step)
        if fault:
            line = self._line("wrong", entry.press_ms, f"{entry.kind}, step {step.index}: {fault}")
            self.result.wrong.append(line)
        else:
            self.result.actions_right += 1
        if entry.typed and step.kind == "type":
            self._text(entry, step)
        elif entry.kind == "type":
            self.result.texts_wrong.append(
                self._line("text", entry.press_ms, f"step {step.index} is a {step.kind}")
            )

    def _nearest(self, entry: Intended) -> Step | None:
        near = [
            step
            for step in self._steps
            if step.index not in self._used and abs(step.press_ms - entry.press_ms) <= NEAR_MS
        ]
        return min(near, key=lambda step: abs(step.press_ms - entry.press_ms), default=None)

    def _text(self, entry: Intended, step: Step) -> None:
        """Compares a text, which may be in several steps.

        Text beyond it must answer later entries.
        """
        parts = [step]
        for later in self._steps:
            typed_meanwhile = step.press_ms < later.press_ms <= entry.end_ms + _KEY_SLACK_MS
            if later.kind == "type" and typed_meanwhile and later.index not in self._used:
                parts.append(later)
                self._used.add(later.index)
        text = "".join(str(part.parameters.get("text") or "") for part in parts)
        is_text = entry.kind == "type"
        if all(part.left_out for part in parts):
            self.result.texts_left_out += is_text
            self._text_left[parts[-1].index] = text
        elif any(part.left_out for part in parts):
            line = f"step {step.index} is left out, but not all of the text"
            self.result.texts_wrong.append(self._line("text", entry.press_ms, line))
        elif text == _REDACTED:
            self.result.texts_right += is_text
        elif text.startswith(entry.typed):
            self.result.texts_right += is_text
            self._text_left[parts[-1].index] = text[len(entry.typed) :]
        else:
            line = f"step {step.index} types something else"
            self.result.texts_wrong.append(self._line("text", entry.press_ms, line))

    def _is_repeated_press(self, entry: Intended) -> bool:
        """Whether a step for a key that is pressed n times answers this press, too."""
        if entry.kind != "hotkey":
            return False
        for step in self._steps:
            spans = step.press_ms - 50 <= entry.press_ms <= step.end_ms + _KEY_SLACK_MS
            left = self._presses_left.get(step.index, 0)
            if spans and left > 0 and not _difference(entry, step):
                self._presses_left[step.index] = left - 1
                self.result.pairs.append((entry, step))
                self.result.actions_right += 1
                return True
        return False

    def _is_rest_of_text(self, entry: Intended) -> bool:
        """Whether a typing step that answers an earlier entry answers this one, too."""
        if not entry.typed:
            return False
        for step in self._steps:
            text = self._text_left.get(step.index, "")
            spans = step.press_ms < entry.press_ms <= step.end_ms + _KEY_SLACK_MS
            if not spans or not text:
                continue
            if step.left_out:
                self.result.texts_left_out += entry.kind == "type"
            elif text.startswith(entry.typed):
                self.result.texts_right += entry.kind == "type"
                self._text_left[step.index] = text[len(entry.typed) :]
            else:
                continue
            self.result.actions_right += 1
            return True
        return False

    def _held(self, entry: Intended) -> None:
        """A held key is right if its steps have as many presses as the log."""
        key = entry.keys[0]
        begin = entry.press_ms - 50
        end = entry.end_ms + _KEY_SLACK_MS
        steps = [step for step in self._steps if begin <= step.press_ms <= end]
        self._used.update(step.index for step in steps)
        if len(key) == 1 or key.lower() in _NET_EFFECT_KEYS:
            return
        presses = sum(step.presses for step in steps)
        if presses == self._log.presses_of(key, begin, end):
            self.result.actions_right += 1
        else:
            self.result.wrong.append(
                self._line("wrong", entry.press_ms, f"held {key}: {presses} presses")
            )

    def _take_explained_steps(self) -> None:
        """Takes steps that are neither right nor invented.

        These are the dragged second press of a double click, a press without end, and the chord
        that switches the layout.
        """
        for entry in self._truth.entries:
            begin = entry.press_ms - NEAR_MS
            end = entry.press_ms + NEAR_MS
            if entry.kind == "word_drag" and entry.second_ms is not None:
                begin = entry.second_ms - NEAR_MS
                end = entry.second_ms + NEAR_MS
            elif entry.kind not in ("unfinished_press", "layout_switch"):
                continue
            taken = [step for step in self._steps if begin <= step.press_ms <= end]
            if entry.kind == "layout_switch":
                taken = [step for step in taken if step.kind == "hotkey"]
            self._used.update(step.index for step in taken)

    def _unfinished_texts(self) -> Iterable[int]:
        left_out = {step.index for step in self._steps if step.left_out}
        return (index for index, text in self._text_left.items() if text and index not in left_out)

    def _line(self, what: str, press_ms: float, detail: str) -> str:
        return f"{what} at {(press_ms - self._truth.start_ms) / 1000:.1f} s: {detail}"


def pair(truth: TruthList, labels: Labels, log: RecordingLog) -> Pairing:
    """Pairs the truth list with the steps of a trajectory."""
    return _Pairer(truth, labels, log).run()


def _difference(entry: Intended, step: Step) -> str:
    """What a step says differently; empty if nothing. Texts are compared apart."""
    if entry.kind in _CLICKS:
        return _click_difference(entry, step)
    if entry.kind in ("drag", "word_drag"):
        return _drag_difference(entry, step)
    if entry.kind == "scroll":
        return _scroll_difference(entry, step)
    return _key_difference(entry, step)


def _click_difference(entry: Intended, step: Step) -> str:
    kind, button, clicks = _CLICKS[entry.kind]
    parameters = step.parameters
    difference = ""
    if step.kind != kind:
        difference = f"a {step.kind}"
    elif button and parameters.get("button") != button:
        difference = "another button"
    elif clicks and parameters.get("clicks", 1) != clicks:
        difference = "another number of clicks"
    elif list(parameters.get("modifiers") or []) != [_key_name(key) for key in entry.modifiers]:
        difference = "other modifiers"
    elif not _is_at(step, "x", "y", entry.x, entry.y):
        difference = "another place"
    return difference


def _drag_difference(entry: Intended, step: Step) -> str:
    if step.kind != "drag":
        return f"a {step.kind}"
    if entry.kind == "word_drag":
        return "" if step.parameters.get("clicks") == 2 else "without the first click"
    starts = _is_at(step, "start_x", "start_y", entry.x, entry.y)
    ends = _is_at(step, "end_x", "end_y", entry.end_x, entry.end_y)
    return "" if starts and ends else "other ends"


def _scroll_difference(entry: Intended, step: Step) -> str:
    if step.kind != "scroll":
        return f"a {step.kind}"
    if not _is_at(step, "x", "y", entry.x, entry.y):
        return "another place"
    if step.parameters["direction"] != entry.direction:
        return "another direction"
    return "" if abs(step.parameters["amount"] - entry.ticks) < 0.5 else "another amount"


def _key_difference(entry: Intended, step: Step) -> str:
    if step.kind == "type" and entry.typed:
        return ""
    if step.kind != "hotkey" or entry.kind == "type":
        return f"a {step.kind}"
    keys = [_key_name(key) for key in entry.keys]
    return "" if step.parameters["keys"] == keys else "other keys"


def _is_at(step: Step, x_name: str, y_name: str, x: float | None, y: float | None) -> bool:
    if x is None or y is None or x_name not in step.parameters:
        return False
    distance_x = abs(step.parameters[x_name] - (x * step.scale + step.pad_x))
    distance_y = abs(step.parameters[y_name] - (y * step.scale + step.pad_y))
    return bool(max(distance_x, distance_y) <= _PLACE_TOLERANCE)


def _key_name(x_name: str) -> str:
    return _KEY_NAMES.get(x_name, x_name.lower())
