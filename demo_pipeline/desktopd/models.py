"""Models of the JSON files of an OSWorld-Desktopd dataset, and the vocabularies of the format.

The vocabularies are roles, states, action types and key names. Coordinates are pixels of the
1920x1080 canvas. validator.py checks rules that concern several files.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import (
    BeforeValidator,
    Field,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from demo_pipeline.files.base_model import Document, explain, field_name

CANVAS_WIDTH = 1920
CANVAS_HEIGHT = 1080
NODE_ID_PATTERN = r"^node_[0-9]+$"
_KEY_WORDS = (
    "ctrl shift alt altgr win command fn esc enter tab space backspace delete up down left right"
    " home end pageup pagedown insert capslock numlock scrolllock pause printscreen apps clear"
    " kana intlro intlyen volumeup volumedown volumemute playpause prevtrack nexttrack"
)
KEY_NAMES = frozenset(_KEY_WORDS.split()) | {f"f{number}" for number in range(1, 25)}
"""The names of keys that are not a single character, in pyautogui's lower-case spelling."""
FRESHNESS = ("fresh", "stale", "changed", "running", "sparse", "unreadable", "none")
"""Values of `freshness`, which this pipeline adds to the format: how current a step's tree is."""
AGREEMENTS = ("agrees", "partial", "differs", "unknown")
"""Values of `tree_agreement`, which this pipeline adds: whether tree and screenshot agree."""


Role = StrEnum(
    "Role",
    "DESKTOP WINDOW DIALOG PANEL TOOLBAR MENUBAR MENU MENUITEM BUTTON CHECKBOX RADIOBUTTON"
    " TEXTFIELD TEXTAREA COMBOBOX LISTBOX LISTITEM TAB TABPANEL TREEVIEW TREEITEM TABLE TABLECELL"
    " SCROLLBAR SLIDER PROGRESSBAR LABEL LINK IMAGE ICON SEPARATOR TOOLTIP STATUSBAR TASKBAR"
    " UNKNOWN",
)
"""The role of a UI node; the value is the name in lower case."""
ElementState = StrEnum(
    "ElementState",
    "FOCUSED SELECTED CHECKED DISABLED EXPANDED COLLAPSED VISIBLE HIDDEN EDITABLE READONLY PRESSED"
    " ACTIVE",
)
"""A state of a UI node; the value is the name in lower case."""


class ActionType(StrEnum):
    """The type of an action."""

    CLICK = "click"
    DOUBLE_CLICK = "double_click"
    RIGHT_CLICK = "right_click"
    TYPE = "type"
    HOTKEY = "hotkey"
    SCROLL = "scroll"
    DRAG = "drag"
    WAIT = "wait"


class Difficulty(StrEnum):
    """The difficulty of a task."""

    EASY = "easy"
    MEDIUM = "medium"
    HARD = "hard"


def is_canonical_key(name: str) -> bool:
    """Returns whether a key name is in `KEY_NAMES` or is a single lower-case character."""
    return name in KEY_NAMES or (len(name) == 1 and name.isprintable() and name == name.lower())


def _whole(value: Any) -> Any:
    """Turns 500.0 into 500, because some programs write integers as floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Text = Annotated[str, Field(min_length=1)]
Whole = Annotated[int, BeforeValidator(_whole)]
Count = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
NodeId = Annotated[str, Field(pattern=NODE_ID_PATTERN)]
RoleName = Annotated[Role, Field(strict=False)]
Button = Literal["left", "right", "middle"]


Pixel = tuple[int, int]


def pixel_at(x: float, y: float, size: Pixel) -> Pixel:
    """Converts relative coordinates to pixel coordinates in a screenshot.

    Args:
        x: share of the width from the left, 0 to 1; 1 is the last pixel.
        y: share of the height from the top, 0 to 1; 1 is the last pixel.
        size: width and height of the screenshot, pixels.
    """
    return min(round(x * size[0]), size[0] - 1), min(round(y * size[1]), size[1] - 1)


def shares_of(x: float, y: float, size: Pixel) -> tuple[float, float]:
    """Converts pixel coordinates in a screenshot to relative coordinates, 0 to 1.

    A pixel outside the screenshot is first moved to its nearest edge.
    """
    return _share(x, size[0]), _share(y, size[1])


def _share(pixel: float, side: int) -> float:
    return min(max(pixel, 0), side - 1) / side


class TargetElement(Document):
    """The node that an action acts on; it is in the UI tree of the same step."""

    id: NodeId
    role: RoleName
    name: str


class Parameters(Document):
    """The parameters of an action; optional keys that are None are not written."""

    left_out_when_none: ClassVar[frozenset[str]] = frozenset(
        {"clicks", "modifiers", "button", "presses"}
    )


class PointParameters(Parameters):
    """The parameters of `double_click` and `right_click`."""

    x: Whole
    y: Whole
    modifiers: list[Text] | None = None


class ClickParameters(Parameters):
    """The parameters of `click`; a triple click has `clicks: 3`."""

    x: Whole
    y: Whole
    button: Button = "left"
    clicks: Literal[3] | None = None
    modifiers: list[Text] | None = None


class TypeParameters(Parameters):
    """The parameters of `type`."""

    text: str


class HotkeyParameters(Parameters):
    """The parameters of `hotkey`.

    Attributes:
        keys: the keys that are held together, in the order of pressing.
        presses: how many times in a row the combination is pressed; None means once.
    """

    keys: list[Text] = Field(min_length=1)
    presses: Annotated[Whole, Field(ge=2)] | None = None


class ScrollParameters(Parameters):
    """The parameters of `scroll`; `amount` is in notches of the wheel."""

    x: Whole
    y: Whole
    direction: Literal["up", "down", "left", "right"]
    amount: Whole = Field(gt=0)
    modifiers: list[Text] | None = None


class DragParameters(Parameters):
    """The parameters of `drag`.

    Attributes:
        button: the held button; None means the left one.
        clicks: 2 if the drag began with the second press of a double click, which selects text word
            by word; 3 if it began with the third press of a triple click; None otherwise.
    """

    start_x: Whole
    start_y: Whole
    end_x: Whole
    end_y: Whole
    button: Button | None = None
    clicks: Literal[2, 3] | None = None
    modifiers: list[Text] | None = None


class WaitParameters(Parameters):
    """The parameters of `wait`."""

    seconds: float = Field(gt=0)


GAP: Literal["gap"] = "gap"
# Maps action types to the models of their parameters.
PARAMETERS: Mapping[ActionType, type[Parameters]] = {
    ActionType.CLICK: ClickParameters,
    ActionType.DOUBLE_CLICK: PointParameters,
    ActionType.RIGHT_CLICK: PointParameters,
    ActionType.TYPE: TypeParameters,
    ActionType.HOTKEY: HotkeyParameters,
    ActionType.SCROLL: ScrollParameters,
    ActionType.DRAG: DragParameters,
    ActionType.WAIT: WaitParameters,
}


DOCUMENTED_PARAMETERS: Mapping[ActionType, frozenset[str]] = {
    ActionType.CLICK: frozenset({"x", "y", "button"}),
    ActionType.DOUBLE_CLICK: frozenset({"x", "y"}),
    ActionType.RIGHT_CLICK: frozenset({"x", "y"}),
    ActionType.TYPE: frozenset({"text"}),
    ActionType.HOTKEY: frozenset({"keys"}),
    ActionType.SCROLL: frozenset({"x", "y", "direction", "amount"}),
    ActionType.DRAG: frozenset({"start_x", "start_y", "end_x", "end_y"}),
    ActionType.WAIT: frozenset({"seconds"}),
}
"""The parameters that the format document defines for each type; the models have a few more."""


class StepAction(Document):
    """The content of action.json. `action_type` decides the model of `parameters`."""

    step_index: Count
    action_type: Annotated[ActionType, Field(strict=False)]
    parameters: SerializeAsAny[Parameters]
    target_element: TargetElement | None = None
    reasoning: str

    @field_validator("parameters", mode="plain")
    @classmethod
    def _by_type(cls, value: Any, info: ValidationInfo) -> Parameters:
        model = PARAMETERS.get(info.data.get("action_type", ""))
        if model is None:
            return Parameters()  # the invalid action_type is reported as an error of that field
        if isinstance(value, model):
            return value
        try:
            return model.model_validate(value.members() if isinstance(value, Parameters) else value)
        except ValidationError as error:
            faults = "; ".join(
                f"{field_name(location) or model.__name__}: {message}"
                for location, message in explain(error)
            )
            raise ValueError(f"for this action_type, {faults}") from None


def is_documented(action: StepAction) -> bool:
    """Returns whether an action has only parameters that the format document defines."""
    return action.parameters.members().keys() <= DOCUMENTED_PARAMETERS[action.action_type]


class _HasParameters(Protocol):
    """An action from a dataset or from the answer of a model."""

    @property
    def parameters(self) -> Parameters:
        """The parameters of the action."""


def points(action: _HasParameters) -> list[tuple[int, int]]:
    """Returns the points of an action, (x, y) in canvas pixels.

    A drag has two points, an action without a position has none, and all others have one.
    """
    parameters = action.parameters
    if isinstance(parameters, DragParameters):
        return [(parameters.start_x, parameters.start_y), (parameters.end_x, parameters.end_y)]
    if isinstance(parameters, PointParameters | ClickParameters | ScrollParameters):
        return [(parameters.x, parameters.y)]
    return []


class Task(Document):
    """The content of task.json. `osworld_task_id` is None if no OSWorld task matches."""

    task_id: Text
    instruction: Text
    osworld_task_id: str | None = None
    application: Text
    difficulty: Annotated[Difficulty, Field(strict=False)]
    expected_steps: Count


class ModelInfo(Document):
    """The agent that acted. `name` is the name of a model, or `human`."""

    name: Text
    version: str


class Result(Document):
    """The content of result.json. `error_message` says why `success` is false."""

    trajectory_id: Text
    success: bool
    total_steps: Count
    completion_time_ms: Count
    error_message: str | None = None
    model_info: ModelInfo


class _IndexEntry(Document):
    """The entry of a trajectory in index.json; `steps` is the number of its steps."""

    id: Text
    task_id: Text
    success: bool
    steps: Count
    application: Text


class Index(Document):
    """The content of index.json.

    `total_trajectories` = `successful` + `failed` = number of entries.
    """

    version: Text = "1.0"
    total_trajectories: Count
    successful: Count
    failed: Count
    trajectories: list[_IndexEntry]


class Creator(Document):
    """The program that made a dataset."""

    name: str = ""
    version: str = ""


class Metadata(Document):
    """The content of metadata.json: the program that made the dataset, and its settings.

    The format does not define the keys of this file.

    Attributes:
        version: the version of the format.
        configuration: the settings that the data depends on.
        counts: the numbers of included and of excluded trajectories, steps and actions.
    """

    name: str = ""
    version: str = "1.0"
    description: str = ""
    created_by: Creator = Creator()
    configuration: dict[str, Any] = Field(default_factory=dict)
    counts: dict[str, Any] = Field(default_factory=dict)
