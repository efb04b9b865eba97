"""Data types for recordings with screenshots, instead of a video, from other tools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo_pipeline.desktopd.models import ActionType, is_canonical_key
from demo_pipeline.importers.source_facts import SourceFacts
from demo_pipeline.importers.source_values import UnreadableSourceError

SourcePoint = tuple[float, float]
"""x and y in pixels of the screenshot."""

POINTED = frozenset(
    {
        ActionType.CLICK,
        ActionType.DOUBLE_CLICK,
        ActionType.RIGHT_CLICK,
        ActionType.SCROLL,
        ActionType.DRAG,
    }
)
"""The types of actions that have a position."""

# Key names of pyautogui, pynput and browsers = key names of action.json, where they differ.
_ALIASES = """
    return=enter escape=esc del=delete ins=insert pgup=pageup pgdn=pagedown page_up=pageup
    page_down=pagedown control=ctrl ctrlleft=ctrl ctrlright=ctrl ctrl_l=ctrl
    ctrl_r=ctrl altleft=alt altright=altgr alt_l=alt alt_r=altgr alt_gr=altgr option=alt
    optionleft=alt optionright=alt shiftleft=shift shiftright=shift shift_l=shift shift_r=shift
    winleft=win winright=win windows=win super=win meta=win cmd_l=cmd cmd_r=cmd cmd=command
    arrowup=up arrowdown=down arrowleft=left arrowright=right caps_lock=capslock
    num_lock=numlock scroll_lock=scrolllock prtsc=printscreen prtscr=printscreen
    prntscrn=printscreen print=printscreen print_screen=printscreen spacebar=space menu=apps
    plus=+ minus=-
"""
_KEY_ALIASES = dict(pair.split("=") for pair in _ALIASES.split())


def key_name(name: str, platform: str = "") -> str:
    """Translates a key name of pyautogui, pynput or a browser to the key name in action.json.

    Unknown names are returned in lower case. pynput's name `cmd` means the Windows key on Windows,
    and Command on macOS.
    """
    if name == " ":
        return "space"
    lower = name.strip().lower() or name
    if lower in {"cmd", "cmd_l", "cmd_r"} and platform != "macos":
        return "win"
    alias = _KEY_ALIASES.get(lower, lower)
    return alias if is_canonical_key(alias) else lower


@dataclass(frozen=True, kw_only=True)
class SourceAct:
    """An action of a recording; positions are pixels of the screenshot before the action.

    Attributes:
        at: the position, or the start of a drag; None if not recorded, or if the type of the action
            has no position.
        end: the end of a drag; None for other types, or if not recorded.
        values: the other parameters of action.json, such as `button`, `text` or `keys`.
    """

    kind: ActionType
    at: SourcePoint | None = None
    end: SourcePoint | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SourceElement:
    """The UI element that the recorder found under the pointer.

    Attributes:
        name: the element's name; empty if the element has no name.
        role: the role as the source names it; empty if not recorded.
        box: left, top, right and bottom in pixels of the screenshot.
    """

    name: str
    role: str = ""
    box: tuple[float, float, float, float]


@dataclass(frozen=True, kw_only=True)
class SourceImage:
    """A screenshot: an image file, the bytes of an image, or the first frame of a video.

    Attributes:
        path: the file that contains the screenshot; named in messages.
        data: the bytes of an image that is embedded in the file; None if the image is not embedded.
        is_video: whether the file is a video, whose first frame is the screenshot.
    """

    path: Path
    data: bytes | None = None
    is_video: bool = False


@dataclass(frozen=True, kw_only=True)
class SourceStep:
    """A screenshot with the actions that follow it.

    Attributes:
        acts: the actions in order. Only the first becomes a step, because no screenshot shows the
            screen before the others.
        screenshot: the screen before the first action; None if missing.
        time_ms: start of the first action, epoch milliseconds.
        end_ms: end of the last action, epoch milliseconds; None if not recorded.
        element: the element under the pointer at the first action; None if not recorded.
        reasoning: the source's text about the actions; empty if the source has no text.
    """

    acts: Sequence[SourceAct]
    screenshot: SourceImage | None
    time_ms: float
    end_ms: float | None = None
    element: SourceElement | None = None
    reasoning: str = ""


@dataclass(kw_only=True)
class SourceTrajectory(SourceFacts):
    """A recording with screenshots and without a video, as an importer reads it.

    Attributes:
        final: the screenshot after the last action; None if the screenshot is missing.
        status_source: a sentence for result.json about the origin of `status`; may be empty.
        actor: `human`, the name of a model, or `unknown`.
    """

    steps: Sequence[SourceStep] = ()
    final: SourceImage | None = None
    status_source: str = ""
    actor: str = "unknown"

    def require_steps(self, place: Path) -> None:
        """Raises `UnreadableSourceError` if there are no steps.

        Args:
            place: the file or folder of the recording, for the message.
        """
        if not self.steps:
            reason = next(iter(self.damaged), "holds no action")
            raise UnreadableSourceError(f"{place}: {reason}")


def last_time_ms(steps: Sequence[SourceStep]) -> float:
    """Returns the time of the last step, as a substitute for a missing time; 0 without steps."""
    return steps[-1].time_ms if steps else 0.0


def click(at: SourcePoint | None, button: str = "left", clicks: int = 1) -> SourceAct:
    """Returns a click as action.json writes it; two left clicks are a double click.

    Args:
        at: the position; None if not recorded.
        button: left, right or middle.
        clicks: 1, 2 or 3 for the left button, 1 for other buttons.
    """
    if button == "right" and clicks == 1:
        return SourceAct(kind=ActionType.RIGHT_CLICK, at=at)
    if button == "left" and clicks == 2:
        return SourceAct(kind=ActionType.DOUBLE_CLICK, at=at)
    values: dict[str, Any] = {"button": button}
    if clicks == 3:
        values["clicks"] = 3
    return SourceAct(kind=ActionType.CLICK, at=at, values=values)


def drag(start: SourcePoint | None, end: SourcePoint | None, button: str = "left") -> SourceAct:
    """Returns a drag. The button is stated only if it is not the left one, as in action.json."""
    values = {} if button == "left" else {"button": button}
    return SourceAct(kind=ActionType.DRAG, at=start, end=end, values=values)


def scroll(at: SourcePoint | None, across: float, down: float) -> SourceAct | None:
    """Returns a scroll in the direction of the larger of two distances; ignores the other one.

    Args:
        at: the position; None if not recorded.
        across: notches to the right; negative values mean left.
        down: notches downwards; negative values mean up.

    Returns:
        The scroll; None if both distances are at most half a notch.
    """
    if abs(down) >= abs(across):
        notches = down
        backward = "up"
        forward = "down"
    else:
        notches = across
        backward = "left"
        forward = "right"
    amount = round(abs(notches))
    if not amount:
        return None
    values = {"direction": forward if notches > 0 else backward, "amount": amount}
    return SourceAct(kind=ActionType.SCROLL, at=at, values=values)


def type_text(text: str) -> SourceAct:
    """Returns an action that types a text."""
    return SourceAct(kind=ActionType.TYPE, values={"text": text})


def press_keys(keys: Sequence[str], presses: int = 1) -> SourceAct:
    """Returns a hotkey: keys that are pressed together, `presses` times."""
    values: dict[str, Any] = {"keys": list(keys)}
    if presses > 1:
        values["presses"] = presses
    return SourceAct(kind=ActionType.HOTKEY, values=values)


def wait(seconds: float) -> SourceAct:
    """Returns a wait: a pause in which no key and no button is pressed."""
    return SourceAct(kind=ActionType.WAIT, values={"seconds": seconds})
