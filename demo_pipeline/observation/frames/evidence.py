"""What the video shows about a recording: the model of evidence.json.

Later stages read it instead of decoding the video again.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from demo_pipeline.actions.scrolls import WheelVote
from demo_pipeline.observation.clock.canvas import Canvas, ScreenPart, ScreenParts
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.changes import ChangedBox, ContentChanges

_LEFT_OUT = (
    "dotted",
    "private_actions",
    "private_s",
    "elsewhere",
    "hovers",
)  # where there is nothing to say


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Wait(_Frozen):
    """A pause that was a wait."""

    action_index: int
    seconds: float = Field(description="from the action before until the screen came to rest")
    settled_s: float = Field(description="video time at which the screen came to rest")
    acted_on: bool = Field(False, description="the next action is at what appeared")


class HoverPlace(NamedTuple):
    """Where the pointer rested and opened something: event space, epoch milliseconds."""

    x: float
    y: float
    since_ms: float


class Hover(_Frozen):
    """A press on what had opened beside the resting pointer."""

    action_index: int
    places: tuple[HoverPlace, ...] = Field(
        description="in order; each but the first was itself opened by the one before"
    )


class SinceScanEvidence(_Frozen):
    """What changed between an action's scan and its screenshot."""

    action_index: int
    scan_event: int = Field(description="line of the scan")
    began: ContentChanges | None = Field(description="since it began; null: not compared")
    ended: ContentChanges | None = Field(description="since it ended; null: not compared")


class TargetEvidence(_Frozen):
    """What the pictures show of the target of a pointing action."""

    action_index: int
    window: int | None = Field(description="position in the tree; null: the tree has to tell")
    began: bool | None = Field(description="redrawn since the scan began; null: not compared")
    ended: bool | None = Field(description="redrawn since the scan ended; null: not compared")
    before_began: bool | None = Field(
        None, description="redrawn from the scan before until the scan began; null: not compared"
    )
    before: bool | None = Field(
        None, description="redrawn since the scan before; null: not compared"
    )


class _TypedEvidence(_Frozen):
    """What changed while text was typed."""

    action_index: int
    places: tuple[ChangedBox, ...]


class TreeScale(_Frozen):
    """From which scan on trees are in other units than the pointer."""

    scan_event: int = Field(description="line of the first such scan")
    scale: float | None = Field(description="units of the log for one of the tree; null: in doubt")


class Evidence(_Frozen):
    """evidence.json: what the stage that decodes hands to later stages."""

    clock: Clock
    canvas: Canvas = Field(description="at the beginning")
    wheel: WheelVote = WheelVote()
    waits: tuple[Wait, ...]
    screen_changes_s: tuple[float, ...] = Field(description="video times of large changes")
    targets: tuple[TargetEvidence, ...] = Field(
        (), description="the targets of pointing actions that have a scan"
    )
    tree_scales: tuple[TreeScale, ...] = Field(
        (), description="where the units of trees change; without one they are those of the log"
    )
    typed: tuple[_TypedEvidence, ...] = Field(
        (), description="what changed from before a typing action to the action after it"
    )
    dotted: tuple[int, ...] = Field(
        (), description="typing actions whose text the picture shows as dots; left out: none"
    )
    since_scan: tuple[SinceScanEvidence, ...] = Field(
        (), description="what changed between the scan of each action and its screenshot"
    )
    recorder_control: tuple[int, ...] = Field(
        (), description="actions that started or stopped the recorder; they are not steps"
    )
    private_actions: tuple[int, ...] = Field(
        (), description="actions while the screen was dark or locked; left out: none"
    )
    private_s: tuple[tuple[float, float], ...] = Field(
        (), description="video times between which the screen was dark or locked; left out: none"
    )
    elsewhere: tuple[int, ...] = Field(
        (),
        description="actions at the border that may have been on another display; left out: none",
    )
    hovers: tuple[Hover, ...] = Field(
        (), description="presses on what the resting pointer had opened; left out: none"
    )
    parts: Sequence[ScreenPart] = Field(
        (), description="of a recording whose screen changed its resolution or scale; else none"
    )

    def screen(self) -> ScreenParts:
        """The parts of the recording, nearly always one."""
        return ScreenParts(tuple(self.parts)) if self.parts else ScreenParts.single(self.canvas)

    def without(
        self, private_actions: Sequence[int], private_s: Sequence[tuple[float, float]]
    ) -> "Evidence":
        """The evidence without what the pictures show of private actions, which it names.

        `private_s`: the video times between which they are.
        """
        changed: dict[str, Any] = {
            name: tuple(
                seen for seen in getattr(self, name) if seen.action_index not in private_actions
            )
            for name in ("waits", "targets", "typed", "since_scan")
        }
        changed["dotted"] = tuple(index for index in self.dotted if index not in private_actions)
        changed["private_actions"] = tuple(private_actions)
        changed["private_s"] = tuple(private_s)
        return self.model_copy(update=changed)

    def to_json(self) -> dict[str, Any]:
        """What is written; the clock's scale is the canvas's, which begins without bars."""
        left_out = {"clock": {"event_scale"}, "canvas": {"left", "top", "stretch"}}
        written: dict[str, Any] = self.model_dump(mode="json", exclude=left_out)
        absent = {name for name in _LEFT_OUT if not written[name]}
        return {name: value for name, value in written.items() if name not in absent}


EVIDENCE_FILE = "evidence.json"


def read_evidence(folder: Path) -> Evidence:
    """evidence.json as a model."""
    return Evidence.model_validate_json((folder / EVIDENCE_FILE).read_bytes())
