"""A trajectory of another tool: actions and screenshots without a video, in its own pixels.

These types are shared by every importer of such trajectories; trajectory_folder.py writes them as
an OSWorld-Desktopd trajectory.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo_pipeline.desktopd.models import ActionType, is_canonical_key

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

# Names of keys in pyautogui, pynput and browsers that differ from ours.
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
    """Our name of a key; a name that is not in the table stays, in lower case.

    `cmd` is pynput's name of the Windows key on Windows and of Command on macOS.
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
    """An action, in pixels of the screenshot before it.

    Attributes:
        kind: of the action.
        at: its place, or where a drag begins; None: the source does not say it, or it has none.
        end: where a drag ends.
        values: the other parameters of action.json, such as `button`, `text` or `keys`.
    """

    kind: ActionType
    at: SourcePoint | None = None
    end: SourcePoint | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SourceElement:
    """The element that the recorder found under the pointer.

    Attributes:
        name: empty if it has none.
        role: as the source says it; empty: not said.
        box: left, top, right and bottom in pixels of the screenshot.
    """

    name: str
    role: str = ""
    box: tuple[float, float, float, float]


@dataclass(frozen=True, kw_only=True)
class SourceImage:
    """A screenshot: an image file, the bytes of an image, or the first frame of a video.

    Attributes:
        path: of the file, which messages name.
        data: of an image that is inside that file; None: the file is the image.
        is_video: the file is a video, and its first frame is meant.
    """

    path: Path
    data: bytes | None = None
    is_video: bool = False


@dataclass(frozen=True, kw_only=True)
class SourceStep:
    """The actions at a screenshot.

    Attributes:
        acts: in order; only the first can be a step, because nothing shows the screen between them.
        screenshot: of the state before; None: missing.
        time_ms: when it was done, epoch milliseconds.
        end_ms: when the source noted that it was over; None: not said.
        element: under the pointer of the first act; None: not recorded.
        reasoning: the source's own words for it; empty: none.
    """

    acts: Sequence[SourceAct]
    screenshot: SourceImage | None
    time_ms: float
    end_ms: float | None = None
    element: SourceElement | None = None
    reasoning: str = ""


@dataclass(kw_only=True)
class SourceTrajectory:
    """A recording with screenshots and no video, as an importer read it.

    Attributes:
        steps: in order.
        final: the screenshot after the last step; None: missing.
        task: what was to be done; empty: not said.
        status: completed, failed or aborted; empty: not said.
        status_source: how the source says so, for result.json; empty if `status` is.
        application: empty: not said.
        platform: windows, macos, linux, or empty.
        actor: `human`, or the name of a model; `unknown`.
        lost: sentences: what was in the source and is not in the trajectory.
        left_out: the same for single events: kind → how many.
        damaged: sentences: what could not be read.
    """

    steps: Sequence[SourceStep]
    final: SourceImage | None = None
    task: str = ""
    status: str = ""
    status_source: str = ""
    application: str = ""
    platform: str = ""
    actor: str = "unknown"
    lost: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    damaged: list[str] = field(default_factory=list)


def click(at: SourcePoint | None, button: str = "left", clicks: int = 1) -> SourceAct:
    """A click; two with the left button are a double click."""
    if button == "right" and clicks == 1:
        return SourceAct(kind=ActionType.RIGHT_CLICK, at=at)
    if button == "left" and clicks == 2:
        return SourceAct(kind=ActionType.DOUBLE_CLICK, at=at)
    values: dict[str, Any] = {"button": button}
    if clicks == 3:
        values["clicks"] = 3
    return SourceAct(kind=ActionType.CLICK, at=at, values=values)


def drag(start: SourcePoint | None, end: SourcePoint | None, button: str = "left") -> SourceAct:
    """A drag; the left button is not named."""
    values = {} if button == "left" else {"button": button}
    return SourceAct(kind=ActionType.DRAG, at=start, end=end, values=values)


def scroll(at: SourcePoint | None, across: float, down: float) -> SourceAct | None:
    """Notches of the wheel, positive = right and down; None: less than half a notch.

    Of a turn in both directions the larger one counts.
    """
    is_down = abs(down) >= abs(across)
    amount = round(abs(down if is_down else across))
    if not amount:
        return None
    names = ("up", "down") if is_down else ("left", "right")
    is_forward = (down if is_down else across) > 0
    values = {"direction": names[is_forward], "amount": amount}
    return SourceAct(kind=ActionType.SCROLL, at=at, values=values)


def type_text(text: str) -> SourceAct:
    """Typed text."""
    return SourceAct(kind=ActionType.TYPE, values={"text": text})


def press_keys(keys: Sequence[str], presses: int = 1) -> SourceAct:
    """Keys that are held together, once or several times."""
    values: dict[str, Any] = {"keys": list(keys)}
    if presses > 1:
        values["presses"] = presses
    return SourceAct(kind=ActionType.HOTKEY, values=values)


def wait(seconds: float) -> SourceAct:
    """A pause until something appeared."""
    return SourceAct(kind=ActionType.WAIT, values={"seconds": seconds})
