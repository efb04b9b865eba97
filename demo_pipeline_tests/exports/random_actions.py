"""Random actions of every type, for tests that write and read an answer."""

from typing import Any

from hypothesis import strategies as st

from demo_pipeline.desktopd.models import PARAMETERS, ActionType
from demo_pipeline.exports.answers import AnsweredAction

_X, _Y = st.integers(0, 1919), st.integers(0, 1079)
_BUTTON = st.sampled_from(["left", "right", "middle"])
_KEYS = st.lists(st.sampled_from(["ctrl", "shift", "a", "é", "enter", "f5"]), min_size=1)
_HELD = {"modifiers": st.lists(st.sampled_from(["ctrl", "shift"]), min_size=1)}
_POINT = {"x": _X, "y": _Y}
_ENDS = {"start_x": _X, "start_y": _Y, "end_x": _X, "end_y": _Y}
_SECONDS = st.floats(0.001, 600, allow_nan=False)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]))  # UTF-8 has no lone surrogates
_WHEEL = {
    "direction": st.sampled_from(["up", "down", "left", "right"]),
    "amount": st.integers(1, 99),
}
_Fields = dict[str, st.SearchStrategy[Any]]
_FIELDS: dict[ActionType, tuple[_Fields, _Fields]] = {
    ActionType.CLICK: ({**_POINT, "button": _BUTTON}, {**_HELD, "clicks": st.just(3)}),
    ActionType.DOUBLE_CLICK: (_POINT, _HELD),
    ActionType.RIGHT_CLICK: (_POINT, _HELD),
    ActionType.TYPE: ({"text": _TEXT}, {}),
    ActionType.HOTKEY: ({"keys": _KEYS}, {"presses": st.integers(2, 30)}),
    ActionType.SCROLL: ({**_POINT, **_WHEEL}, _HELD),
    ActionType.DRAG: (_ENDS, {**_HELD, "button": _BUTTON}),
    ActionType.WAIT: ({"seconds": _SECONDS}, {}),
}


def _actions(kind: ActionType) -> st.SearchStrategy[AnsweredAction]:
    required, optional = _FIELDS[kind]
    values = st.fixed_dictionaries(required, optional=optional)
    return values.map(lambda found: AnsweredAction(kind, PARAMETERS[kind].model_validate(found)))


RANDOM_ACTIONS: st.SearchStrategy[AnsweredAction] = st.one_of(*map(_actions, ActionType))
