"""What the decoders of answers share: the same keys again are one action.

Belongs here: joining decoded actions.
"""

from collections.abc import Iterable, Iterator

from demo_pipeline.formats.answers import AnsweredAction, ForeignAction
from demo_pipeline.formats.desktopd.step_actions import HotkeyParameters
from demo_pipeline.formats.desktopd.vocabulary import ActionType

_Done = AnsweredAction | ForeignAction


def merge_presses(actions: Iterable[_Done]) -> Iterator[_Done]:
    """Yield the actions; the same keys one after another are one action with `presses`."""
    held: AnsweredAction | None = None
    for action in actions:
        merged = _merged(held, action)
        if merged is not None:
            held = merged
            continue
        if held is not None:
            yield held
        held = None
        if isinstance(action, AnsweredAction) and action.action_type is ActionType.HOTKEY:
            held = action
        else:
            yield action
    if held is not None:
        yield held


def _merged(first: AnsweredAction | None, second: _Done) -> AnsweredAction | None:
    if first is None or not isinstance(second, AnsweredAction):
        return None
    one, other = first.parameters, second.parameters
    if not isinstance(one, HotkeyParameters) or not isinstance(other, HotkeyParameters):
        return None
    if one.keys != other.keys:
        return None
    presses = (one.presses or 1) + (other.presses or 1)
    return AnsweredAction(ActionType.HOTKEY, HotkeyParameters(keys=one.keys, presses=presses))
