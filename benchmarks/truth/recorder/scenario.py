"""A scenario: what is recorded, on which screen and keyboard, and what the hand does."""

from collections.abc import Callable
from dataclasses import dataclass

from desktop import Desktop
from hand import Hand


@dataclass(frozen=True)
class Scenario:
    """One recording to make; a scenario file assigns it to `SCENARIO`.

    Attributes:
        title, app, objectives, content: what meta.json says about the task.
        prepare: starts the programs before the recording begins.
        run: what the hand does; the truth list is the hand's own.
        layout, variant, layout_options: the keyboard, as `setxkbmap` names it.
        locale: what meta.json says; people often have another keyboard than their locale's.
        caps_lock: whether Caps Lock is on before the recording begins.
        scan_seconds: the period of accessibility scans.
    """

    title: str
    app: str
    objectives: list[str]
    content: str
    prepare: Callable[[Desktop], None]
    run: Callable[[Hand], None]
    width: int = 1920
    height: int = 1080
    fps: int = 15
    layout: str = "us"
    variant: str = ""
    layout_options: str = ""
    locale: str = "en-GB"
    caps_lock: bool = False
    scan_seconds: float = 3
