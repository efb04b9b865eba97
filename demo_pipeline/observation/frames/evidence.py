"""The model of evidence.json: the facts about a recording that only its video shows.

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

# Fields that evidence.json leaves out if they are empty.
_LEFT_OUT = ("dotted", "private_actions", "private_s", "elsewhere", "hovers")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Wait(_Frozen):
    """A pause that was a wait."""

    action_index: int
    seconds: float = Field(description="from the action before until the screen came to rest")
    settled_s: float = Field(description="video time at which the screen came to rest")
    acted_on: bool = Field(False, description="the next action is at what appeared")


class HoverPlace(NamedTuple):
    """A place at which the resting pointer opened something.

    `x` and `y` are in event space; `since_ms` is when the rest began, epoch milliseconds.
    """

    x: float
    y: float
    since_ms: float


class Hover(_Frozen):
    """A press on something that the resting pointer had opened, such as a menu."""

    action_index: int
    places: tuple[HoverPlace, ...] = Field(
        description="in order; each but the first was itself opened by the one before"
    )


class SinceScanEvidence(_Frozen):
    """The changes between an action's scan and its screenshot."""

    action_index: int
    scan_event: int = Field(description="line of the scan")
    began: ContentChanges | None = Field(description="since it began; null: not compared")
    ended: ContentChanges | None = Field(description="since it ended; null: not compared")


class TargetEvidence(_Frozen):
    """Whether the frames show that the target of a pointing action was redrawn."""

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
    """The places that changed while text was typed."""

    action_index: int
    places: tuple[ChangedBox, ...]


class TreeScale(_Frozen):
    """The first scan from which on trees are in other units than the pointer."""

    scan_event: int = Field(description="line of the first such scan")
    scale: float | None = Field(description="units of the log for one of the tree; null: in doubt")


class Evidence(_Frozen):
    """The content of evidence.json."""

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
        """Returns the parts of the recording; nearly every recording has exactly one."""
        return ScreenParts(tuple(self.parts)) if self.parts else ScreenParts.single(self.canvas)

    def without(
        self, private_actions: Sequence[int], private_s: Sequence[tuple[float, float]]
    ) -> "Evidence":
        """Returns the evidence without the facts about private actions; it lists these actions.

        `private_s`: the video times between which they lie.
        """
        update: dict[str, Any] = {
            "dotted": tuple(index for index in self.dotted if index not in private_actions),
            "private_actions": tuple(private_actions),
            "private_s": tuple(private_s),
        }
        for name in ("waits", "targets", "typed", "since_scan"):
            entries = getattr(self, name)
            update[name] = tuple(
                entry for entry in entries if entry.action_index not in private_actions
            )
        return self.model_copy(update=update)

    def to_json(self) -> dict[str, Any]:
        """Returns the content of the file.

        The clock's scale is left out because the canvas has it. The bars and the stretch of the
        canvas are left out because no recording begins with them.
        """
        left_out = {"clock": {"event_scale"}, "canvas": {"left", "top", "stretch"}}
        written: dict[str, Any] = self.model_dump(mode="json", exclude=left_out)
        empty = {name for name in _LEFT_OUT if not written[name]}
        return {name: value for name, value in written.items() if name not in empty}


EVIDENCE_FILE = "evidence.json"


def read_evidence(folder: Path) -> Evidence:
    """Reads evidence.json of a folder of screenshots."""
    return Evidence.model_validate_json((folder / EVIDENCE_FILE).read_bytes())
