"""The hit test: which element and which window of a scan is under a point, and what has the focus.

Belongs here: what is a target, and what the order of windows and the recorder's own hit test say of
the window in front. What the picture shows of it is in frames/scan_comparisons.py.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile

import msgspec
import numpy as np

from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.trees.scans import ROUNDING_PX
from demo_pipeline.observation.trees.step_tree import Element, StepTree
from demo_pipeline.recording.logged_scans import normalised

_ORDERED = frozenset({"window", "pane"})  # names of UI Automation and macOS
_DESKTOP_PANE = "Program Manager"  # what Windows calls the desktop with its icons
_PAGES = frozenset({"document", "documentweb", "documentframe"})
_CLIPPING = _PAGES | {"scrollpane", "viewport", "scrollarea"}
_IN_FRONT = frozenset({"menu", "menuitem", "dialog"})  # they lie over what is in other branches
TEXT_ROLES = frozenset({"textfield", "textarea", "combobox"})
_CONTROLS = TEXT_ROLES | {
    *("button", "checkbox", "radiobutton", "slider", "scrollbar", "link", "menuitem"),
    *("tab", "listitem", "treeitem", "tablecell", "icon"),
}
_THUMB = "thumb"  # UI Automation's name of the part that is dragged
_HAVE_THUMBS = frozenset({"slider", "scrollbar"})
WHOLE_WINDOW_SHARE = 0.97  # of a window's or the screen's area; a panel this large is not a target


def node_at(
    tree: StepTree, x: float, y: float, front: int | None = None, *, of_scroll: bool = False
) -> Element | None:
    """The target under a point in event space: the smallest visible node, or the control around it.

    A window, the desktop, a document, a panel as large as its window, a container without a name
    and what another window covers are not targets. None when it is not known which of two windows
    is in front (`front`, as the picture shows, or else the tree), and when nothing tells which of
    two branches of the tree is. A document with a name is a target `of_scroll`.
    """
    under = _under(tree, x, y)
    tip = _front_branch(tree, _of_front_window(tree, under, x, y, front))
    if tip is None:
        return None
    path = (node for node in (tip, *ancestors(tree, tip)) if node in under)
    if raw_role(tree, tip) == _THUMB:
        path = (node for node in path if tree.roles[node] in _HAVE_THUMBS)
    elif not tree.raws[tip].name:
        path = (node for node in path if tree.roles[node] in _CONTROLS or _is_page(tree, node))
    target = next(path, None)
    if target is None or (_is_whole(tree, target) and not (of_scroll and _is_page(tree, target))):
        return None
    return tree.element(target)


def _under(tree: StepTree, x: float, y: float) -> list[int]:
    """Positions of the visible nodes at a point, without windows and the desktop."""
    return [
        position
        for position in positions_at(tree, x, y)
        if not tree.is_window(position)
        and tree.roles[position] != "desktop"
        and "hidden" not in tree.states_at(position)
        and not _is_clipped(tree, position, x, y)
        and not _is_in_hidden_bar(tree, position)
    ]


def _of_front_window(
    tree: StepTree, under: Sequence[int], x: float, y: float, front: int | None
) -> Sequence[int]:
    """The nodes of the front window, and of none; no nodes when it is not known."""
    if front is None:
        front = front_window(tree, x, y)
    if front is None:
        windows = windows_at(tree, x, y)
        return under if sum(not _is_overlay(tree, node) for node in windows) < 2 else ()
    visible = [node for node in under if tree.windows_around[node] in {None, front}]
    return visible if visible or not _is_overlay(tree, front) else under


def _front_branch(tree: StepTree, under: Sequence[int]) -> int | None:
    """The innermost node of the branch in front; None when nothing tells which one that is.

    A menu item, an option and a dialog are in front of other branches, a submenu of its menu; else
    the smallest is, if the others are around it or before it in the document, thus drawn before.
    A label inside the box of a control that it is no part of may be scrolled away behind it.
    """
    around: set[int] = set()
    for node in under:
        around.update(takewhile(lambda other: other not in around, ancestors(tree, node)))
    tips = [node for node in under if node not in around]
    depths = [_depth_in_front(tree, tip) for tip in tips]
    tips = [tip for tip, depth in zip(tips, depths, strict=True) if depth == max(depths)]
    boxes = {tip: box for tip in tips if (box := tree.box(tip)) is not None}
    first = min(boxes, key=lambda tip: (area(boxes[tip]), -tip), default=None)
    if first is None:
        return None
    outer = [tip for tip, box in boxes.items() if tip != first and _encloses(box, boxes[first])]
    is_shown = tree.roles[first] in _CONTROLS or not any(tree.roles[n] in _CONTROLS for n in outer)
    return first if is_shown and all(tip <= first or tip in outer for tip in boxes) else None


def _depth_in_front(tree: StepTree, tip: int) -> int:
    """How many menus, options and dialogs a node is in, itself included."""
    roles = [tree.roles[node] for node in (tip, *ancestors(tree, tip))]
    is_option = roles[0] == "listitem" and "combobox" in roles
    return is_option + sum(role in _IN_FRONT for role in roles)


def _is_overlay(tree: StepTree, window: int) -> bool:
    """Whether a window shows nothing, so that it covers nothing."""
    inside = (node for node in range(window + 1, len(tree)) if tree.parents[node] == window)
    return not any(
        area(tree.box(node)) > 0 and "hidden" not in tree.states_at(node) for node in inside
    )


def focused_node(tree: StepTree) -> Element | None:
    """The element with the keyboard focus, when the scan has it; never a window or a page."""
    focused = tree.focused
    if focused is None or tree.roles[focused] in {"desktop", "window"}:
        return None
    if tree.roles[focused] == "panel" and not _is_widget(tree, focused):
        return None
    return tree.element(focused)


def _is_widget(tree: StepTree, panel: int) -> bool:
    """Whether a panel that can have the focus is drawn by its program, as a sheet of cells is."""
    is_document = raw_role(tree, panel).startswith("document")
    return not is_document and can_have_focus(tree, panel) and not _is_whole(tree, panel)


def can_have_focus(tree: StepTree, position: int) -> bool:
    """Whether the recorder says that a node can; one that never does tells no order."""
    if {"hidden", "disabled"} & set(tree.states_at(position)):
        return False
    try:
        states = msgspec.json.decode(bytes(tree.raws[position].states), type=dict[str, object])
    except msgspec.DecodeError:
        return False
    return states.get("keyboard_focusable") is True or states.get("focusable") is True


def has_element(tree: StepTree, element: Element) -> bool:
    """Whether a tree of the same screen has an element of this role, name and box."""
    return any(
        (tree.roles[node], tree.name_at(node)) == (element.role, element.name)
        for node in positions_of(tree, element.box)
    )


def text_node_around(tree: StepTree, element: Element) -> Element | None:
    """The text input that an element is, or is in."""
    path = (element.position, *ancestors(tree, element.position))
    return next((tree.element(node) for node in path if tree.roles[node] in TEXT_ROLES), None)


def agrees_with_cursor(tree: StepTree) -> bool | None:
    """Whether our hit test at the recorder's pointer agrees with the recorder's own.

    The two elements agree when one contains the other: recorders often return a node a level or two
    above the smallest. Elements of different windows never agree. None when the recorder made no
    hit test, or found nothing, or the tree does not tell what is in front.
    """
    cursor = tree.cursor
    if cursor is None or cursor.position is None or cursor.element is None:
        return None
    x = cursor.position.x
    y = cursor.position.y
    theirs = PixelBox(*cursor.element.box)
    if not theirs.contains(x, y):
        return None
    under = _under(tree, x, y)
    hit = _front_branch(tree, _of_front_window(tree, under, x, y, None))
    box = None if hit is None else tree.box(hit)
    if hit is None or box is None:
        return None if under else False
    node = tree.cursor_node
    if node is not None and tree.windows_around[node] != tree.windows_around[hit]:
        return False
    return _encloses(theirs, box) or _encloses(box, theirs)


def _encloses(outer: PixelBox, inner: PixelBox) -> bool:
    """Whether `inner` is inside `outer`, apart from rounding."""
    return (
        outer.x - ROUNDING_PX <= inner.x
        and outer.y - ROUNDING_PX <= inner.y
        and inner.right <= outer.right + ROUNDING_PX
        and inner.bottom <= outer.bottom + ROUNDING_PX
    )


def _is_whole(tree: StepTree, position: int) -> bool:
    """Whether it is a document, or a panel as large as its window or the screen."""
    if tree.roles[position] not in {"panel", "unknown"}:
        return False
    windows = (node for node in ancestors(tree, position) if tree.is_window(node))
    window = next((box for node in windows if (box := tree.box(node)) is not None), None)
    least = min(tree.screen[0] * tree.screen[1], area(window) or float("inf"))
    is_large = area(tree.box(position)) >= WHOLE_WINDOW_SHARE * least
    return is_large or _is_page(tree, position)


def _is_page(tree: StepTree, position: int) -> bool:
    role = raw_role(tree, position)
    is_document = role.startswith("document") or role == "webarea"
    return is_document and bool(tree.raws[position].name)


def _is_clipped(tree: StepTree, position: int, x: float, y: float) -> bool:
    """Whether the node is scrolled out of sight: its box continues beyond the pane around it.

    An open menu is drawn over the pane that holds its title, so only pages clip beyond a menu.
    """
    is_in_menu = False
    for node in ancestors(tree, position):
        box = tree.box(node)
        clips = raw_role(tree, node) in (_PAGES if is_in_menu else _CLIPPING)
        if clips and box is not None and box.area > 0 and not box.contains(x, y):
            return True
        is_in_menu = is_in_menu or tree.roles[node] == "menu"
    return False


def _is_in_hidden_bar(tree: StepTree, position: int) -> bool:
    """Whether the node is a title in a menu bar without height, which shows nothing.

    LibreOffice lists its own menu bar so, when the desktop's toolkit draws another one.
    """
    parent = tree.parents[position]
    if parent < 0 or tree.roles[parent] != "menubar":
        return False
    box = tree.box(parent)
    return box is not None and box.area == 0


def is_desktop(tree: StepTree, position: int) -> bool:
    """Whether a node is the desktop of Windows, which is behind all windows."""
    return position in tree.top_panes and tree.raws[position].name == _DESKTOP_PANE


def windows_at(tree: StepTree, x: float, y: float) -> list[int]:
    """Positions of the outermost visible windows under a point in event space."""
    return [
        position
        for position in tree.windows
        if (box := tree.box(position)) is not None
        and box.contains(x, y)
        and "hidden" not in tree.states_at(position)
    ]


def front_window(tree: StepTree, x: float, y: float) -> int | None:
    """Position of the window that the tree says is in front at a point; None when it does not.

    The desktop of Windows is behind all others. The children of one node are listed from front to
    back by UI Automation and macOS, and so are macOS's applications: there the first is in front.
    The order of AT-SPI has no meaning, and a Windows recorder that makes hit tests lists windows at
    the top as their scans end: there its hit test tells. The focus does not: AT-SPI's stays in a
    window that another one covers.
    """
    windows = windows_at(tree, x, y)
    if len(windows) < 2:
        return next(iter(windows), None)
    windows = [node for node in windows if not is_desktop(tree, node)] or windows
    if len(windows) == 1:
        return windows[0]
    if not all(raw_role(tree, position) in _ORDERED for position in windows):
        return None
    has_evidence = tree.cursor is not None or tree.focused is not None
    if not has_evidence or all(tree.parents[position] >= 0 for position in windows):
        return windows[0]
    return _hit_of(tree, windows)


def _hit_of(tree: StepTree, windows: list[int]) -> int | None:
    """The window that the recorder hit at the pointer, if all of these are under the pointer."""
    hit = tree.cursor_node
    if hit is None or tree.cursor is None or tree.cursor.position is None:
        return None
    point = tree.cursor.position
    under = set(windows_at(tree, point.x, point.y))
    window = tree.windows_around[hit]
    return window if window in windows and under.issuperset(windows) else None


def positions_at(tree: StepTree, x: float, y: float) -> list[int]:
    """Positions of the nodes whose box contains a point in event space, in document order."""
    left, top, width, height = tree.boxes.T
    inside = (left <= x) & (x < left + width) & (top <= y) & (y < top + height)
    positions: list[int] = np.flatnonzero(inside).tolist()
    return positions


def positions_of(tree: StepTree, box: PixelBox | None) -> list[int]:
    """Positions of the nodes that have exactly a box."""
    if box is None:
        return []
    positions: list[int] = np.flatnonzero((tree.boxes == box).all(axis=1)).tolist()
    return positions


def area(box: PixelBox | None) -> float:
    """Of a box in event space; 0 without one."""
    return box.area if box is not None else 0.0


def raw_role(tree: StepTree, position: int) -> str:
    """The recorder's name of a node's role, in lower case without a platform's prefix."""
    return normalised(tree.raws[position].role or "")


def ancestors(tree: StepTree, position: int) -> Iterator[int]:
    """Positions of the nodes around a node, the nearest first."""
    position = tree.parents[position]
    while position >= 0:
        yield position
        position = tree.parents[position]
