"""Models evidence.json: the facts about a recording that only its video shows.

Later stages read this file instead of decoding the video again.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from demo_pipeline.actions.scrolls import WheelVote
from demo_pipeline.observation.clock.canvas import Canvas, ScreenPart, ScreenParts
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.changes import ChangedBox, ContentChanges

# Fields that evidence.json leaves out if they are empty.
_LEFT_OUT = ("dotted", "private_actions", "private_s", "elsewhere", "hovers")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Wait(_Frozen):
    """A pause in which the person waited for the screen."""

    action_index: int
    seconds: float = Field(
        description="time from the end of the previous action until the screen came to rest"
    )
    settled_s: float = Field(description="video time at which the screen came to rest")
    acted_on: bool = Field(
        False, description="whether the next action is at the content that appeared"
    )


class HoverPlace(NamedTuple):
    """A place at which the pointer rested and thereby opened a menu or a card.

    Attributes:
        x, y: position of the pointer, event space.
        since_ms: time at which the pointer came to rest, epoch milliseconds.
    """

    x: float
    y: float
    since_ms: float


class Hover(_Frozen):
    """A press on content that the resting pointer had opened, such as a menu."""

    action_index: int
    places: tuple[HoverPlace, ...] = Field(
        description="places in time order; each place after the first lies on content that opened "
        "at the previous place, such as a submenu"
    )


class SinceScanEvidence(_Frozen):
    """The changes of the screen between the scan before an action and the action's screenshot."""

    action_index: int
    scan_event: int = Field(description="1-based line number of the scan in the log")
    began: ContentChanges | None = Field(
        description="changes since the scan began; null if not compared"
    )
    ended: ContentChanges | None = Field(
        description="changes since the scan ended; null if not compared"
    )


class TargetEvidence(_Frozen):
    """Whether the frames show that the target of a pointing action was redrawn."""

    action_index: int
    window: int | None = Field(
        description="index in the tree of the window that the frames show in front; null if only "
        "the tree can tell"
    )
    began: bool | None = Field(
        description="whether the target was redrawn since the scan began; null if not compared"
    )
    ended: bool | None = Field(
        description="whether the target was redrawn since the scan ended; null if not compared"
    )
    before_began: bool | None = Field(
        None,
        description="whether the target was redrawn between the previous scan and the start of "
        "this scan; null if not compared",
    )
    before: bool | None = Field(
        None,
        description="whether the target was redrawn since the previous scan; null if not compared",
    )


class _TypedEvidence(_Frozen):
    """The boxes in which the screen changed while text was typed."""

    action_index: int
    places: tuple[ChangedBox, ...]


class TreeScale(_Frozen):
    """The units of accessibility trees from one scan up to the scan of the next `TreeScale`."""

    scan_event: int = Field(
        description="1-based line number in the log of the first scan with these units"
    )
    scale: float | None = Field(
        description="units of the log's positions per unit of the tree; null if unknown"
    )


class Evidence(_Frozen):
    """The content of evidence.json."""

    clock: Clock
    canvas: Canvas = Field(description="canvas at the start of the recording")
    wheel: WheelVote = WheelVote()
    waits: tuple[Wait, ...]
    screen_changes_s: tuple[float, ...] = Field(
        description="video times at which much of the screen changed"
    )
    targets: tuple[TargetEvidence, ...] = Field(
        (), description="evidence about the targets of pointing actions with a scan"
    )
    tree_scales: tuple[TreeScale, ...] = Field(
        (),
        description="scans at which the units of trees change; before the first of them, trees "
        "have the units of the log",
    )
    typed: tuple[_TypedEvidence, ...] = Field(
        (),
        description="areas that changed between the start of a typing action and the next action",
    )
    dotted: tuple[int, ...] = Field(
        (), description="indexes of typing actions whose text the screen shows as dots"
    )
    since_scan: tuple[SinceScanEvidence, ...] = Field(
        (), description="changes between the scan and the screenshot of each action"
    )
    recorder_control: tuple[int, ...] = Field(
        (),
        description="indexes of actions that started or stopped the recorder, which are not steps",
    )
    private_actions: tuple[int, ...] = Field(
        (), description="indexes of actions on a dark or locked screen"
    )
    private_s: tuple[tuple[float, float], ...] = Field(
        (),
        description="(start, end) of each time when the screen was dark or locked, video seconds",
    )
    elsewhere: tuple[int, ...] = Field(
        (),
        description="indexes of actions at the border that may have been on another display",
    )
    hovers: tuple[Hover, ...] = Field((), description="presses on content that hovering had opened")
    parts: Sequence[ScreenPart] = Field(
        (),
        description="the parts of the recording, if the screen changed its resolution or scale; "
        "otherwise empty",
    )

    def screen(self) -> ScreenParts:
        """Returns the canvas of each part of the recording. Most recordings have only one part."""
        return ScreenParts(tuple(self.parts)) if self.parts else ScreenParts.single(self.canvas)

    def without(
        self, private_actions: Sequence[int], private_s: Sequence[tuple[float, float]]
    ) -> "Evidence":
        """Returns the evidence without private actions; only their indexes are kept.

        `private_s` has the (start, end) of each private period, video seconds.
        """
        update: dict[str, Any] = {
            "dotted": tuple(index for index in self.dotted if index not in private_actions),
            "private_actions": tuple(private_actions),
            "private_s": tuple(private_s),
        }
        for name in ("waits", "targets", "typed", "since_scan", "hovers"):
            entries = getattr(self, name)
            update[name] = tuple(
                entry for entry in entries if entry.action_index not in private_actions
            )
        return self.model_copy(update=update)

    def to_json(self) -> dict[str, Any]:
        """Returns the content of evidence.json without empty fields of `_LEFT_OUT`.

        The clock's scale is left out, because it equals that of the canvas. The canvas's bars and
        stretch are left out, because they are used only after a change of the screen's resolution.
        """
        left_out = {"clock": {"event_scale"}, "canvas": {"left", "top", "stretch"}}
        written: dict[str, Any] = self.model_dump(mode="json", exclude=left_out)
        empty = {name for name in _LEFT_OUT if not written[name]}
        return {name: value for name, value in written.items() if name not in empty}


EVIDENCE_FILE = "evidence.json"


def read_evidence(folder: Path) -> Evidence:
    """Reads evidence.json from a folder of screenshots."""
    return Evidence.model_validate_json((folder / EVIDENCE_FILE).read_bytes())
