"""A small desktop as data: its widgets, its state, and the position of each widget.

Boxes are in pixels of a 1920 x 1080 screen, until `Desktop.at` scales them to another size.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Kind = Literal[
    "window",
    "title_bar",
    "menu",
    "pane",
    "label",
    "button",
    "text_field",
    "check_box",
    "list",
    "row",
    "menu_item",
    "progress_bar",
]
TITLE_HEIGHT = 36
ROW_HEIGHT = 34


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels, without the right and bottom edges."""

    x: int
    y: int
    width: int
    height: int

    def contains(self, x: float, y: float) -> bool:
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height

    def moved(self, offset: tuple[int, int]) -> "Box":
        return replace(self, x=self.x + offset[0], y=self.y + offset[1])

    def scaled(self, scale: float) -> "Box":
        left = round(self.x * scale)
        top = round(self.y * scale)
        right = (self.x + self.width) * scale
        bottom = (self.y + self.height) * scale
        return Box(left, top, round(right) - left, round(bottom) - top)


@dataclass(frozen=True, slots=True)
class Effect:
    """A reaction of the desktop to an input.

    The kind `open` opens a window or menu. `set_text` sets the text of `target` to `text`.
    `progress` fills the progress bar `target` for `seconds`, and then starts the effects in `then`.
    """

    kind: Literal["open", "set_text", "progress"]
    target: str
    text: str = ""
    seconds: float = 0.0
    then: tuple["Effect", ...] = ()


@dataclass(frozen=True, slots=True)
class Widget:
    """A named element of the desktop; `parent` is the window or menu that shows the element."""

    name: str
    kind: Kind
    box: Box
    parent: str = ""
    text: str = ""
    rows: tuple[str, ...] = ()
    initially_open: bool = True
    on_click: tuple[Effect, ...] = ()
    on_right_click: tuple[Effect, ...] = ()
    on_enter: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class ScreenState:
    """The state of the screen at an instant, without the pointer.

    `windows` lists the open windows from back to front. `scrolled` maps a list to its first visible
    row. `moved` maps a window or menu to its offset from its box. `selected` says whether the
    focused text is selected.
    """

    windows: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scrolled: Mapping[str, int] = field(default_factory=dict)
    moved: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    chosen: Mapping[str, str] = field(default_factory=dict)
    progress: Mapping[str, float] = field(default_factory=dict)
    checked: frozenset[str] = frozenset()
    pressed: str = ""
    focused: str = ""
    selected: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """A widget, title bar or list row at its position. Rows outside the list are not visible."""

    name: str
    kind: Kind
    box: Box
    widget: Widget
    visible: bool = True

    @property
    def label(self) -> str:
        """The accessible name: the name of a row or title bar without the name of its owner."""
        return self.widget.name if self.kind == "title_bar" else self.name.rpartition("/")[2]


@dataclass(frozen=True)
class Desktop:
    """Widgets with unique names on a screen of `width` x `height` pixels."""

    widgets: tuple[Widget, ...]
    width: int = 1920
    height: int = 1080
    scale: float = 1.0

    def at(self, width: int, height: int) -> "Desktop":
        """Returns the desktop scaled to a screen size. The desktop must not be scaled already."""
        scale = min(width / 1920, height / 1080)
        widgets = tuple(replace(w, box=w.box.scaled(scale)) for w in self.widgets)
        return Desktop(widgets, width, height, scale)

    @property
    def title_height(self) -> int:
        return round(TITLE_HEIGHT * self.scale)

    @property
    def row_height(self) -> int:
        return round(ROW_HEIGHT * self.scale)

    def widget(self, name: str) -> Widget:
        return next(w for w in self.widgets if w.name == name)

    def initial(self) -> ScreenState:
        tops = [w for w in self.widgets if w.kind in {"window", "menu"} and w.initially_open]
        return ScreenState(
            windows=tuple(w.name for w in tops),
            texts={w.name: w.text for w in self.widgets if w.text},
            rows={w.name: w.rows for w in self.widgets if w.kind == "list"},
        )

    def placed(self, state: ScreenState) -> Iterator[Placed]:
        """Yields all widgets in `state`, from back to front."""
        for widget in self.widgets:
            if not widget.parent and widget.kind not in {"window", "menu"}:
                offset = state.moved.get(widget.name, (0, 0))
                yield Placed(widget.name, widget.kind, widget.box.moved(offset), widget)
        for name in state.windows:
            yield from self._window(self.widget(name), state)

    def _window(self, window: Widget, state: ScreenState) -> Iterator[Placed]:
        offset = state.moved.get(window.name, (0, 0))
        box = window.box.moved(offset)
        yield Placed(window.name, window.kind, box, window)
        if window.kind == "window":
            bar = replace(box, height=self.title_height)
            yield Placed(f"{window.name}/title bar", "title_bar", bar, window)
        for child in self.widgets:
            if child.parent == window.name and self._exists(child, state):
                yield Placed(child.name, child.kind, child.box.moved(offset), child)
                if child.kind == "list":
                    yield from self._rows(child, child.box.moved(offset), state)

    def _exists(self, widget: Widget, state: ScreenState) -> bool:
        return widget.kind != "progress_bar" or widget.name in state.progress

    def visible_rows(self, widget: Widget) -> int:
        return widget.box.height // self.row_height

    def _rows(self, widget: Widget, box: Box, state: ScreenState) -> Iterator[Placed]:
        first = state.scrolled.get(widget.name, 0)
        for index, row in enumerate(state.rows[widget.name]):
            line = index - first
            row_box = Box(box.x, box.y + line * self.row_height, box.width, self.row_height)
            visible = 0 <= line < self.visible_rows(widget)
            yield Placed(f"{widget.name}/{row}", "row", row_box, widget, visible)

    def find(self, state: ScreenState, name: str) -> Placed:
        """Returns the visible widget, title bar or row called `name`.

        Raises:
            LookupError: nothing on the screen has this name.
        """
        for thing in self.placed(state):
            if thing.name == name and thing.visible:
                return thing
        raise LookupError(f"no {name!r} on the screen; windows open: {state.windows}")

    def hit(self, state: ScreenState, x: float, y: float) -> Placed | None:
        """Returns the frontmost visible widget, title bar or row under a point, or None."""
        under = [p for p in self.placed(state) if p.visible and p.box.contains(x, y)]
        return under[-1] if under else None
