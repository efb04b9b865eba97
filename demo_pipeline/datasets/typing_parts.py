"""Typing that the actions part at a rest, joined again where the screen was still the same.

Belongs here: the joining of the rows. Where typing is parted is in actions/typed_text.py, whether
the screen was replaced in observation/frames/action_frames.py.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from demo_pipeline.actions.action_tables import CONTINUED, Action

_Row = Mapping[str, Any]
_Recorded = tuple[Action, _Row, _Row]


def joined_typing(rows: Iterable[_Recorded]) -> Iterator[_Recorded]:
    """Each action with its rows of the frames and trees tables; typing that went on is one."""
    last: _Recorded | None = None
    for row in rows:
        if last is not None and row[1].get("reason_code") == CONTINUED:
            last = (_typed_on(last[0], row[0]), *last[1:])
            continue
        if last is not None:
            yield last
        last = row
    if last is not None:
        yield last


def _typed_on(first: Action, more: Action) -> Action:
    """Two parts of one typing as one action."""
    return replace(
        first,
        text=(first.text or "") + (more.text or ""),
        events=sorted([*first.events, *more.events]),
        end_ms=max(first.end_ms, more.end_ms),
        last_event=max(first.last_event, more.last_event),
        flags=sorted({*first.flags, *more.flags} - {CONTINUED}),
    )
