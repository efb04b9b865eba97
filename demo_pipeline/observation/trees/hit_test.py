"""Finds the element and the window of a tree under a point (the hit test).

The order of windows in the tree, or the recorder's own hit test, tells which window is in front.
The position of a node is its index in the tree's document order.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile

import msgspec
import numpy as np

from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.trees.scans import ROUNDING_PX
from demo_pipeline.observation.trees.step_tree import Element, StepTree
from demo_pipeline.recording.logged_scans import normalised

# Logged roles of windows on Windows and macOS, whose trees list windows from front to back.
_ORDERED = frozenset({"window", "pane"})
_DESKTOP_PANE = "Program Manager"  # name of the pane with the desktop's icons on Windows
_PAGES = frozenset({"document", "documentweb", "documentframe"})  # logged roles of documents
_CLIPPING = _PAGES | {"scrollpane", "viewport", "scrollarea"}  # logged roles of scrolled containers
_IN_FRONT = frozenset({"menu", "menuitem", "dialog"})  # roles that cover other branches of a tree
TEXT_ROLES = frozenset({"textfield", "textarea", "combobox"})
# Roles of elements that can be targets even if they have no name.
_CONTROLS = TEXT_ROLES | {
    "button",
    "checkbox",
    "radiobutton",
    "slider",
    "scrollbar",
    "link",
    "menuitem",
    "tab",
    "listitem",
    "treeitem",
    "tablecell",
    "icon",
}
_THUMB = "thumb"  # logged role of the draggable part of a slider or scroll bar
_HAVE_THUMBS = frozenset({"slider", "scrollbar"})
# A panel that covers at least 97 % of its window or of the screen is never a target.
WHOLE_WINDOW_SHARE = 0.97


def node_at(
    tree: StepTree, x: float, y: float, front: int | None = None, *, of_scroll: bool = False
) -> Element | None:
    """Returns the target under a point: the smallest visible element, or the control around it.

    Windows, the desktop, documents, panels as large as their window, unnamed containers and covered
    elements are never targets.

    Args:
        x, y: the point, event space.
        front: tree position of the front window, according to the video. If None, it is
            taken from the tree.
        of_scroll: whether the action is a scroll. The target of a scroll may be a named document.

    Returns:
        The target. None if there is no target, or if it is unknown which window or which branch of
        the tree is in front.
    """
    under = _visible_nodes_at(tree, x, y)
    innermost = _innermost_in_front(tree, _nodes_of_front_window(tree, under, x, y, front))
    if innermost is None:
        return None
    is_thumb = raw_role(tree, innermost) == _THUMB
    has_name = bool(tree.raws[innermost].name) or _is_paragraph(tree, innermost)
    visible = set(under)
    for node in (innermost, *ancestors(tree, innermost)):
        if node not in visible:
            continue
        role = tree.roles[node]
        if is_thumb:
            is_target = role in _HAVE_THUMBS
        else:
            is_target = has_name or role in _CONTROLS or _is_page(tree, node)
        if is_target:
            is_scrolled_page = of_scroll and _is_page(tree, node)
            if _is_whole(tree, node) and not is_scrolled_page:
                return None
            return tree.element(node)
    return None


def _visible_nodes_at(tree: StepTree, x: float, y: float) -> list[int]:
    """Returns the tree positions of the visible nodes under a point, except windows and desktop."""
    return [
        position
        for position in positions_at(tree, x, y)
        if not tree.is_window(position)
        and tree.roles[position] != "desktop"
        and "hidden" not in tree.states_at(position)
        and not _is_clipped(tree, position, x, y)
        and not _is_in_hidden_bar(tree, position)
    ]


def _nodes_of_front_window(
    tree: StepTree, under: Sequence[int], x: float, y: float, front: int | None
) -> Sequence[int]:
    """Returns the nodes under a point that are in the front window, or in no window.

    The result is empty if it is unknown which window is in front.

    Args:
        under: positions of all nodes under the point.
        x, y: the point, event space.
        front: tree position of the front window, according to the video. If None, it is
            taken from the tree.
    """
    if front is None:
        front = front_window(tree, x, y)
    if front is None:
        covering = [node for node in windows_at(tree, x, y) if not _is_empty_window(tree, node)]
        return under if len(covering) < 2 else ()
    in_front = [node for node in under if tree.windows_around[node] in {None, front}]
    return in_front if in_front or not _is_empty_window(tree, front) else under


def _innermost_in_front(tree: StepTree, under: Sequence[int]) -> int | None:
    """Returns the innermost node of the branch of the tree that is in front, or None if unknown.

    Menu items, options and dialogs are in front of other branches, and a submenu is in front of its
    menu. If several branches remain, the branch with the smallest node is in front. Each node of
    the other branches must surround this smallest node or come earlier in document order; otherwise
    the result is None. The result is also None if the smallest node is not a control but a control
    of another branch surrounds it. The node may then be a label that is scrolled out of sight.

    Args:
        under: positions of the nodes under a point.
    """
    around: set[int] = set()
    for node in under:
        around.update(takewhile(lambda outer: outer not in around, ancestors(tree, node)))
    innermost = [node for node in under if node not in around]
    deepest = max((_popup_depth(tree, node) for node in innermost), default=0)
    boxes: dict[int, PixelBox] = {}
    for node in innermost:
        box = tree.box(node)
        if box is not None and _popup_depth(tree, node) == deepest:
            boxes[node] = box
    smallest = min(boxes, key=lambda node: (area(boxes[node]), -node), default=None)
    if smallest is None:
        return None
    for node, box in boxes.items():
        if node == smallest:
            continue
        surrounds = _encloses(box, boxes[smallest])
        is_foreign_control = surrounds and tree.roles[node] in _CONTROLS
        if is_foreign_control and tree.roles[smallest] not in _CONTROLS:
            return None
        if node > smallest and not surrounds:
            return None
    return smallest


def _popup_depth(tree: StepTree, node: int) -> int:
    """Returns the number of menus, menu items and dialogs at or around a node.

    A list item in a combo box counts as well.
    """
    depth = 0
    for outer in (node, *ancestors(tree, node)):
        if tree.roles[outer] in _IN_FRONT:
            depth += 1
    is_in_combo_box = "combobox" in (tree.roles[outer] for outer in ancestors(tree, node))
    if tree.roles[node] == "listitem" and is_in_combo_box:
        depth += 1
    return depth


def _is_empty_window(tree: StepTree, window: int) -> bool:
    """Returns whether a window has no visible children and therefore covers nothing."""
    for node in range(window + 1, len(tree)):
        is_visible = area(tree.box(node)) > 0 and "hidden" not in tree.states_at(node)
        if tree.parents[node] == window and is_visible:
            return False
    return True


def focused_node(tree: StepTree) -> Element | None:
    """Returns the element that the scan calls focused.

    Returns None if there is no such element, or if it is the desktop, a window, or a panel that
    cannot have the focus itself.
    """
    focused = tree.focused
    if focused is None or tree.roles[focused] in {"desktop", "window"}:
        return None
    if tree.roles[focused] == "panel" and not _is_widget(tree, focused):
        return None
    return tree.element(focused)


def _is_widget(tree: StepTree, panel: int) -> bool:
    """Returns whether a panel is a widget that can have the focus, such as a spreadsheet's sheet.

    Documents and panels that fill a window are not widgets.
    """
    is_document = raw_role(tree, panel).startswith("document")
    return not is_document and can_have_focus(tree, panel) and not _is_whole(tree, panel)


def can_have_focus(tree: StepTree, position: int) -> bool:
    """Returns whether the recorder says that a node can have the focus."""
    if {"hidden", "disabled"} & set(tree.states_at(position)):
        return False
    try:
        states = msgspec.json.decode(bytes(tree.raws[position].states), type=dict[str, object])
    except msgspec.DecodeError:
        return False
    return states.get("keyboard_focusable") is True or states.get("focusable") is True


def has_element(tree: StepTree, element: Element) -> bool:
    """Returns whether a tree has an element with the same role, name and box as `element`.

    `element` may come from another tree.
    """
    for node in positions_of(tree, element.box):
        if (tree.roles[node], tree.name_at(node)) == (element.role, element.name):
            return True
    return False


def text_node_around(tree: StepTree, element: Element) -> Element | None:
    """Returns the innermost text input at or around an element, or None if there is none."""
    for node in (element.position, *ancestors(tree, element.position)):
        if tree.roles[node] in TEXT_ROLES:
            return tree.element(node)
    return None


def agrees_with_cursor(tree: StepTree) -> bool | None:
    """Returns whether our hit test at the pointer agrees with the recorder's own hit test there.

    They agree if both elements are in the same window and one contains the other. The windows are
    compared only if the recorder's element is in the tree. Recorders often return an element one or
    two levels above the smallest one.

    Returns None if the recorder made no hit test, found no element, or found one that does not
    contain the pointer. Also returns None if it is unknown which element is in front.
    """
    cursor = tree.cursor
    if cursor is None or cursor.position is None or cursor.element is None:
        return None
    x = cursor.position.x
    y = cursor.position.y
    recorders_box = PixelBox(*cursor.element.box)
    if not recorders_box.contains(x, y):
        return None
    under = _visible_nodes_at(tree, x, y)
    hit = _innermost_in_front(tree, _nodes_of_front_window(tree, under, x, y, None))
    box = None if hit is None else tree.box(hit)
    if hit is None or box is None:
        return None if under else False
    recorders_hit = tree.cursor_node
    if recorders_hit is not None:
        window = tree.windows_around[hit]
        if tree.windows_around[recorders_hit] != window:
            return False
    return _encloses(recorders_box, box) or _encloses(box, recorders_box)


def _encloses(outer: PixelBox, inner: PixelBox) -> bool:
    """Returns whether `inner` is inside `outer`, with a tolerance of `ROUNDING_PX`."""
    return (
        outer.x - ROUNDING_PX <= inner.x
        and outer.y - ROUNDING_PX <= inner.y
        and inner.right <= outer.right + ROUNDING_PX
        and inner.bottom <= outer.bottom + ROUNDING_PX
    )


def _is_whole(tree: StepTree, position: int) -> bool:
    """Returns whether a node is a named document, or a panel as large as its window or the screen.

    Only nodes with the role `panel` or `unknown` count. Documents have the role `panel`, too.
    """
    if tree.roles[position] not in {"panel", "unknown"}:
        return False
    whole = tree.screen[0] * tree.screen[1]
    for node in ancestors(tree, position):
        box = tree.box(node)
        if tree.is_window(node) and box is not None:
            whole = min(whole, box.area or whole)
            break
    is_large = area(tree.box(position)) >= WHOLE_WINDOW_SHARE * whole
    return is_large or _is_page(tree, position)


def _is_page(tree: StepTree, position: int) -> bool:
    """Returns whether a node is a document with a name."""
    role = raw_role(tree, position)
    is_document = role.startswith("document") or role == "webarea"
    return is_document and bool(tree.raws[position].name)


def _is_paragraph(tree: StepTree, position: int) -> bool:
    """Returns whether a node is a paragraph of a text editor.

    The paragraphs of LibreOffice have a text but no name.
    """
    return raw_role(tree, position) == "paragraph" and bool(tree.name_at(position))


def _is_clipped(tree: StepTree, position: int, x: float, y: float) -> bool:
    """Returns whether a node is scrolled out of sight at a point.

    The node is out of sight if a scrollable container around it does not contain the point; the
    border counts as inside. Menu items are hidden only by documents, because an open menu is drawn
    over other containers.
    """
    is_in_menu = False
    for node in ancestors(tree, position):
        box = tree.box(node)
        clips = raw_role(tree, node) in (_PAGES if is_in_menu else _CLIPPING)
        if clips and box is not None and box.area > 0:
            point = PixelBox(x, y, 0, 0)
            if not _encloses(box, point):
                return True
        is_in_menu = is_in_menu or tree.roles[node] == "menu"
    return False


def _is_in_hidden_bar(tree: StepTree, position: int) -> bool:
    """Returns whether a node is a menu title in a menu bar that is invisible (it has no area).

    LibreOffice lists its own menu bar even where the desktop draws another menu bar instead.
    """
    parent = tree.parents[position]
    if parent < 0 or tree.roles[parent] != "menubar":
        return False
    box = tree.box(parent)
    return box is not None and box.area == 0


def is_desktop(tree: StepTree, position: int) -> bool:
    """Returns whether a node is the desktop of Windows, which is behind all windows."""
    return position in tree.top_panes and tree.raws[position].name == _DESKTOP_PANE


def windows_at(tree: StepTree, x: float, y: float) -> list[int]:
    """Returns the tree positions of the outermost visible windows under a point (event space)."""
    windows: list[int] = []
    for position in tree.windows:
        box = tree.box(position)
        if box is not None and box.contains(x, y) and "hidden" not in tree.states_at(position):
            windows.append(position)
    return windows


def front_window(tree: StepTree, x: float, y: float) -> int | None:
    """Returns the tree position of the front window at a point.

    Returns None if there is no window, or if it is unknown which one is in front. The rules are:

    - The desktop of Windows is behind all windows.
    - UI Automation and macOS list windows from front to back.
    - If a Windows recorder makes hit tests, its hit test shows which window is in front. The
      listed order of the windows is then only the order in which their scans ended.
    - With AT-SPI, neither the order of windows nor the focus tells which window is in front.
    """
    windows = windows_at(tree, x, y)
    if len(windows) < 2:
        return next(iter(windows), None)
    windows = [node for node in windows if not is_desktop(tree, node)] or windows
    if len(windows) == 1:
        return windows[0]
    if not all(raw_role(tree, position) in _ORDERED for position in windows):
        return None
    makes_hit_tests = tree.cursor is not None or tree.focused is not None
    if not makes_hit_tests or all(tree.parents[position] >= 0 for position in windows):
        return windows[0]
    return _window_hit_by_recorder(tree, windows)


def _window_hit_by_recorder(tree: StepTree, windows: list[int]) -> int | None:
    """Returns the window in which the recorder's own hit test at the pointer found an element.

    Returns None if there is no such window, or if any of `windows` is not under the pointer.
    """
    hit = tree.cursor_node
    if hit is None or tree.cursor is None or tree.cursor.position is None:
        return None
    point = tree.cursor.position
    under = set(windows_at(tree, point.x, point.y))
    window = tree.windows_around[hit]
    return window if window in windows and under.issuperset(windows) else None


def positions_at(tree: StepTree, x: float, y: float) -> list[int]:
    """Returns the tree positions of the nodes whose box contains a point, in document order."""
    left, top, width, height = tree.boxes.T
    inside = (left <= x) & (x < left + width) & (top <= y) & (y < top + height)
    positions: list[int] = np.flatnonzero(inside).tolist()
    return positions


def positions_of(tree: StepTree, box: PixelBox | None) -> list[int]:
    """Returns the tree positions of the nodes that have exactly this box."""
    if box is None:
        return []
    positions: list[int] = np.flatnonzero((tree.boxes == box).all(axis=1)).tolist()
    return positions


def area(box: PixelBox | None) -> float:
    """Returns the area of a box in event space; 0 if the box is None."""
    return box.area if box is not None else 0.0


def raw_role(tree: StepTree, position: int) -> str:
    """Returns the logged role of a node in the uniform spelling of `normalised`."""
    return normalised(tree.raws[position].role or "")


def ancestors(tree: StepTree, position: int) -> Iterator[int]:
    """Yields the positions of a node's ancestors, from the parent to the root."""
    position = tree.parents[position]
    while position >= 0:
        yield position
        position = tree.parents[position]
