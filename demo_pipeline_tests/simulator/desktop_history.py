"""Computes the states of the desktop over time from scheduled changes."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from demo_pipeline_tests.simulator.desktop import Desktop, Effect, Placed, ScreenState, Widget

Change = Callable[[ScreenState], ScreenState]
PROGRESS_STEP_MS = 100


@dataclass
class DesktopHistory:
    """The states of a desktop over time.

    Times passed to `at` must not decrease, and changes are never scheduled before the latest of
    these times.
    """

    desktop: Desktop
    change_ms: list[int]
    states: list[ScreenState]
    _due: list[tuple[int, int, Change]] = field(default_factory=list)
    _count: int = 0

    @classmethod
    def opened(cls, desktop: Desktop, start_ms: int) -> "DesktopHistory":
        return cls(desktop, [start_ms], [desktop.initial()])

    def schedule(self, at_ms: int, change: Change) -> None:
        heapq.heappush(self._due, (at_ms, self._count, change))
        self._count += 1

    def at(self, now_ms: int) -> ScreenState:
        """Returns the state at `now_ms`, after all changes that are due by then."""
        while self._due and self._due[0][0] <= now_ms:
            at_ms, _, change = heapq.heappop(self._due)
            self.change_ms.append(at_ms)
            self.states.append(change(self.states[-1]))
        return self.states[-1]

    def settled_ms(self) -> int:
        """Returns the time of the last scheduled change, in epoch milliseconds."""
        return max([at_ms for at_ms, _, _ in self._due] + [self.change_ms[-1]])

    def start(self, effects: tuple[Effect, ...], at_ms: int, pointer: tuple[int, int]) -> None:
        """Schedules the changes of `effects`, which begin at `at_ms`."""
        for effect in effects:
            if effect.kind == "progress":
                self._progress(effect, at_ms, pointer)
            else:
                self.schedule(at_ms, self._change(effect, pointer))

    def _progress(self, effect: Effect, at_ms: int, pointer: tuple[int, int]) -> None:
        steps = max(1, round(effect.seconds * 1000 / PROGRESS_STEP_MS))
        for step in range(steps + 1):
            self.schedule(at_ms + step * PROGRESS_STEP_MS, _filled(effect.target, step / steps))
        end = at_ms + (steps + 1) * PROGRESS_STEP_MS
        self.schedule(end, _finished(effect.target))
        self.start(effect.then, end, pointer)

    def _change(self, effect: Effect, pointer: tuple[int, int]) -> Change:
        if effect.kind == "open":
            return _opened(self.desktop.widget(effect.target), pointer)
        return _with_text(effect.target, effect.text)


def _filled(bar: str, share: float) -> Change:
    return lambda state: replace(state, progress={**state.progress, bar: share})


def _finished(bar: str) -> Change:
    def change(state: ScreenState) -> ScreenState:
        return replace(state, progress={k: v for k, v in state.progress.items() if k != bar})

    return change


def _opened(window: Widget, pointer: tuple[int, int]) -> Change:
    def change(state: ScreenState) -> ScreenState:
        moved = dict(state.moved)
        if window.kind == "menu":
            moved[window.name] = (pointer[0] - window.box.x, pointer[1] - window.box.y)
        behind = tuple(name for name in state.windows if name != window.name)
        return replace(state, windows=(*behind, window.name), moved=moved)

    return change


def _with_text(target: str, text: str) -> Change:
    return lambda state: replace(state, texts={**state.texts, target: text})


def pressed(name: str) -> Change:
    """Returns a change: a mouse button is pressed on `name`, or released if `name` is empty."""
    return lambda state: replace(state, pressed=name)


def clicked(thing: Placed) -> Change:
    """Returns the change after a click: a field is focused, a box is ticked, a row is selected."""

    def change(state: ScreenState) -> ScreenState:
        if thing.kind == "text_field":
            return replace(state, focused=thing.name, selected=False)
        if thing.kind == "check_box":
            return replace(state, checked=state.checked ^ {thing.name})
        if thing.kind == "row":
            chosen = {**state.chosen, thing.widget.name: thing.label}
            return replace(state, chosen=chosen, focused=thing.widget.name)
        return state

    return change


def focused(name: str) -> Change:
    """Returns a change: the keyboard focus moves to `name`."""
    return lambda state: replace(state, focused=name, selected=False)


def typed(character: str) -> Change:
    """Returns a change: a character or a backspace is typed into the focused field.

    It replaces a selected text.
    """

    def change(state: ScreenState) -> ScreenState:
        text = "" if state.selected else state.texts.get(state.focused, "")
        if character == "\b":
            text = "" if state.selected else text[:-1]
        else:
            text += character
        return replace(state, texts={**state.texts, state.focused: text}, selected=False)

    return change


def all_selected(state: ScreenState) -> ScreenState:
    """Returns the state after the text of the focused field was selected."""
    return replace(state, selected=True)


def scrolled(owner: str, rows: int, last_first_row: int) -> Change:
    """Returns a change: a list scrolls down by `rows`, but not beyond its ends."""

    def change(state: ScreenState) -> ScreenState:
        first = min(max(0, state.scrolled.get(owner, 0) + rows), last_first_row)
        return replace(state, scrolled={**state.scrolled, owner: first})

    return change


def shifted(name: str, dx: int, dy: int) -> Change:
    """Returns a change: a window moves by `dx`, `dy` pixels."""

    def change(state: ScreenState) -> ScreenState:
        x, y = state.moved.get(name, (0, 0))
        return replace(state, moved={**state.moved, name: (x + dx, y + dy)})

    return change
