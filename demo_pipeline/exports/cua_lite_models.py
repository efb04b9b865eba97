"""The rows of CUA-Lite: keys, actions, messages and metadata; reading an answer in its form.

Belongs here: the models. A row has the columns `images`, a list of paths, and `messages` and
`metadata`, both JSON text. AgentNet's code may use the same keys, under pyautogui's names. Rules
between the parts of a row, and files, are in cua_lite_validator.py.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, Tag

from demo_pipeline.desktopd.models import Text
from demo_pipeline.files.base_model import Document

_SAME = (
    "ctrl alt shift enter tab space backspace delete esc up down left right home end pageup"
    " pagedown insert capslock clear printscreen volumeup volumedown volumemute playpause nexttrack"
    " prevtrack"
)
_FUNCTION_KEYS = tuple(f"f{number}" for number in range(1, 25))
_CHARACTERS = frozenset(map(chr, range(33, 127))) - frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_TO_LITE: Mapping[str, str] = {
    **{name: name for name in (*_SAME.split(), *_FUNCTION_KEYS)},
    "win": "meta",
    "command": "meta",
    "apps": "menu",
}
# A key of two names of ours is read as the first; the second key for Enter is read as Enter.
_FROM_LITE: Mapping[str, str] = {
    **{lite: ours for ours, lite in reversed(list(_TO_LITE.items()))},
    "kp_enter": "enter",
}


def to_lite_key(name: str) -> str | None:
    """CUA-Lite's name of one of our keys; None: it has none."""
    return name if name in _CHARACTERS else _TO_LITE.get(name)


def from_lite_key(name: str) -> str | None:
    """Our name of one of CUA-Lite's keys; None: it is not one.

    `meta` is read as `win`, because a key alone does not tell the computer.
    """
    return name if name in _CHARACTERS else _FROM_LITE.get(name)


LITE_MAX = 1000  # coordinates are integers from 0 to this, on each axis
LITE_COLUMNS = ("images", "messages", "metadata")
LITE_ROOT = "cua-lite"  # every path of an image begins with this folder
LITE_DONE = "Done."  # the last words of a task that was ended
COMPUTER, POINT, BBOX = "computer", "point", "bbox"  # the tools
PLATFORMS = ("desktop", "browser", "mobile")
TASK_TYPES = ("understanding", "grounding.action", "grounding.point", "grounding.bbox", "use")
LITE_SPLITS = ("train", "validation")
LITE_IMAGE = re.compile(
    rf"{LITE_ROOT}/(?P<name>[^/]+)/images/(?P<head>[0-9a-f]{{2}})/(?P<hash>[0-9a-f]{{64}})\.\w+"
)

_Unit = Annotated[int, Field(ge=0, le=LITE_MAX)]
Coordinate = Annotated[list[_Unit], Field(min_length=2, max_length=2)]
Box = Annotated[list[_Unit], Field(min_length=4, max_length=4)]
_Button = Literal["left", "right", "middle"]


def _known_keys(keys: list[str]) -> list[str]:
    if any(from_lite_key(key) is None for key in keys):
        raise ValueError("a key is none of the form's names")
    return keys


_Keys = Annotated[list[Text], Field(min_length=1), AfterValidator(_known_keys)]
_Seconds = Annotated[float, Field(ge=0)]


class LiteDocument(Document):
    """A part of a row; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")


class LiteClick(LiteDocument):
    """One to three clicks; without a coordinate where the pointer is."""

    action: Literal["click"]
    coordinate: Coordinate | None = None
    button: _Button = "left"
    clicks: Annotated[int, Field(ge=1, le=3)] = 1


class LiteDrag(LiteDocument):
    """A drag to a coordinate, from another one or from where the pointer is."""

    action: Literal["drag"]
    start_coordinate: Coordinate | None = None
    coordinate: Coordinate
    button: _Button = "left"


class LiteScroll(LiteDocument):
    """Turning the wheel by a number of notches."""

    action: Literal["scroll"]
    direction: Literal["up", "down", "left", "right"]
    amount: Annotated[int, Field(gt=0)]
    coordinate: Coordinate | None = None


class LiteType(LiteDocument):
    """Text at the keyboard focus; a final line break is the Enter key."""

    action: Literal["type"]
    text: str


class LiteKeys(LiteDocument):
    """Keys that are pressed together, held down or released."""

    action: Literal["key", "key_down", "key_up"]
    keys: _Keys


class LiteHoldKey(LiteDocument):
    """Keys that are held for some seconds."""

    action: Literal["hold_key"]
    keys: _Keys
    duration: _Seconds


class LiteMove(LiteDocument):
    """The pointer moves."""

    action: Literal["mouse_move"]
    coordinate: Coordinate


class LiteButton(LiteDocument):
    """A button is pressed or released where the pointer is."""

    action: Literal["mouse_down", "mouse_up"]
    button: _Button = "left"


class LiteWait(LiteDocument):
    """Nothing for some seconds."""

    action: Literal["wait"]
    duration: _Seconds


class LiteLook(LiteDocument):
    """A question about the screen, not an action."""

    action: Literal["screenshot", "cursor_position"]


LiteAction = Annotated[
    LiteClick
    | LiteDrag
    | LiteScroll
    | LiteType
    | LiteKeys
    | LiteHoldKey
    | LiteMove
    | LiteButton
    | LiteWait
    | LiteLook,
    Field(discriminator="action"),
]


class ComputerArguments(LiteDocument):
    """The arguments of `computer`."""

    actions: list[LiteAction] = Field(min_length=1)


class PointArguments(LiteDocument):
    """The arguments of `point`."""

    coordinate: Coordinate


class BoxArguments(LiteDocument):
    """The arguments of `bbox`: left, top, right, bottom."""

    coordinate: Box


class LiteFunction(LiteDocument):
    """What is called; the arguments are checked by the name of the tool."""

    name: Literal["computer", "point", "bbox"]
    arguments: dict[str, Any]


class LiteCall(LiteDocument):
    """A call of a tool."""

    id: Text
    type: Literal["function"]
    function: LiteFunction


class LiteImagePart(LiteDocument):
    """A picture: its place in the column `images`."""

    type: Literal["image"]
    index: Annotated[int, Field(ge=0)]


class LiteWords(LiteDocument):
    """Words, of one of the kinds that an adapter tells apart."""

    type: Literal["text", "action_description", "inline_reasoning", "history_summary"]
    text: Text


class LiteTextPart(LiteDocument):
    """Words of the person who asks."""

    type: Literal["text"]
    text: Text


class LiteNote(LiteDocument):
    """What belongs to a turn and is not shown to a model."""

    type: Literal["metadata"]
    data: dict[str, Any]


class LiteUserTurn(LiteDocument):
    """The first screen and the task."""

    role: Literal["user"]
    content: list[Annotated[LiteImagePart | LiteTextPart, Field(discriminator="type")]] = Field(
        min_length=1
    )


class LiteAssistantTurn(LiteDocument):
    """Words and the call of a tool."""

    role: Literal["assistant"]
    content: list[Annotated[LiteWords | LiteNote, Field(discriminator="type")]] = Field(
        default_factory=list
    )
    reasoning_content: str | None = None
    tool_calls: list[LiteCall] = Field(default_factory=list)


class LiteToolTurn(LiteDocument):
    """The screen after a call."""

    role: Literal["tool"]
    tool_call_id: Text
    content: list[LiteImagePart] = Field(min_length=1)


LiteTurn = Annotated[
    Annotated[LiteUserTurn, Tag("user")]
    | Annotated[LiteAssistantTurn, Tag("assistant")]
    | Annotated[LiteToolTurn, Tag("tool")],
    Field(discriminator="role"),
]


class LiteConversation(LiteDocument):
    """The column `messages`, as the only member of an object."""

    messages: list[LiteTurn] = Field(min_length=2)


class LiteMetadata(LiteDocument):
    """The column `metadata`; what is free is in `others`."""

    metadata_kind: Literal["cua"]
    dims: Annotated[list[str], Field(min_length=2, max_length=2)]
    extra_tool_schemas: Annotated[list[Any], Field(max_length=0)]
    valid_actions: None
    others: "LiteOthers"


class LiteOthers(Document):
    """What else is known about a row; unknown keys are kept."""

    id: Text
    resolution: Annotated[list[Annotated[int, Field(gt=0)]], Field(min_length=2, max_length=2)]
    os: Literal["windows", "macos", "ubuntu"] | None = None
