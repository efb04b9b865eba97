"""The actions of OSWorld-Desktopd: action.json, with one model of parameters per action type.

Coordinates are pixels of the 1920x1080 canvas.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializeAsAny, ValidationError, ValidationInfo, field_validator

from demo_pipeline.formats.base_model import Document, explain, field_name
from demo_pipeline.formats.desktopd.vocabulary import (
    ActionType,
    Button,
    Count,
    NodeId,
    RoleName,
    Text,
    Whole,
)


class TargetElement(Document):
    """The node that an action acts on: a node of the same step's tree."""

    id: NodeId
    role: RoleName
    name: str


class Parameters(Document):
    """The parameters of an action; optional keys that are None are not written."""

    left_out_when_none: ClassVar[frozenset[str]] = frozenset(
        {"clicks", "modifiers", "button", "presses"}
    )


class PointParameters(Parameters):
    """`double_click` and `right_click`."""

    x: Whole
    y: Whole
    modifiers: list[Text] | None = None


class ClickParameters(Parameters):
    """`click`; a triple click has `clicks: 3`."""

    x: Whole
    y: Whole
    button: Button = "left"
    clicks: Literal[3] | None = None
    modifiers: list[Text] | None = None


class TypeParameters(Parameters):
    """`type`."""

    text: str


class HotkeyParameters(Parameters):
    """`hotkey`: keys that are held together, in the order of pressing.

    `presses` is how often they are pressed one after another; once without it.
    """

    keys: list[Text] = Field(min_length=1)
    presses: Annotated[Whole, Field(ge=2)] | None = None


class ScrollParameters(Parameters):
    """`scroll`; `amount` is in notches of the wheel."""

    x: Whole
    y: Whole
    direction: Literal["up", "down", "left", "right"]
    amount: Whole = Field(gt=0)
    modifiers: list[Text] | None = None


class DragParameters(Parameters):
    """`drag`; without `button` it is the left one."""

    start_x: Whole
    start_y: Whole
    end_x: Whole
    end_y: Whole
    button: Button | None = None
    modifiers: list[Text] | None = None


class WaitParameters(Parameters):
    """`wait`."""

    seconds: float = Field(gt=0)


GAP: Literal["gap"] = "gap"
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


class StepAction(Document):
    """action.json. `parameters` become the model that belongs to `action_type`."""

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
            return Parameters()  # action_type is invalid, which is an error of its own
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


class HistoryGap(Document):
    """An action that no screenshot shows, in the history of a sample: no step of action.json.

    It has the keys of one. `reasoning` says in words what was done, never where or what text.
    """

    step_index: None = None
    action_type: Literal["gap"] = GAP
    parameters: dict[str, Any] = Field(default_factory=dict, max_length=0)
    target_element: None = None
    reasoning: str


def points(action: StepAction) -> list[tuple[int, int]]:
    """The points of an action, (x, y) in canvas pixels: none, one, or two for a drag."""
    parameters = action.parameters
    if isinstance(parameters, DragParameters):
        return [(parameters.start_x, parameters.start_y), (parameters.end_x, parameters.end_y)]
    if isinstance(parameters, PointParameters | ClickParameters | ScrollParameters):
        return [(parameters.x, parameters.y)]
    return []
