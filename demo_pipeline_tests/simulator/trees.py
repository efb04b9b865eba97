"""Makes accessibility scans of the desktop: axtree events with each platform's role names."""

from collections.abc import Iterator
from random import Random
from typing import Any

from demo_pipeline_tests.simulator.desktop import Box, Desktop, Kind, Placed
from demo_pipeline_tests.simulator.keys import Platform
from demo_pipeline_tests.simulator.script import Performance

Node = dict[str, Any]

# Kind → role in UI Automation (Windows), AX (macOS), AT-SPI (Linux), and OSWorld-Desktopd.
_ROLES: dict[Kind, tuple[str, str, str, str]] = {
    "window": ("Window", "AXWindow", "frame", "window"),
    "title_bar": ("TitleBar", "AXGroup", "title bar", "panel"),
    "menu": ("Menu", "AXMenu", "menu", "menu"),
    "pane": ("Pane", "AXGroup", "panel", "panel"),
    "label": ("Text", "AXStaticText", "label", "label"),
    "button": ("Button", "AXButton", "push button", "button"),
    "text_field": ("Edit", "AXTextField", "entry", "textfield"),
    "check_box": ("CheckBox", "AXCheckBox", "check box", "checkbox"),
    "list": ("List", "AXList", "list", "listbox"),
    "row": ("ListItem", "AXRow", "list item", "listitem"),
    "menu_item": ("MenuItem", "AXMenuItem", "menu item", "menuitem"),
    "progress_bar": ("ProgressBar", "AXProgressIndicator", "progress bar", "progressbar"),
}
DESKTOPD_ROLES = {kind: names[3] for kind, names in _ROLES.items()}
_COLUMN: dict[Platform, int] = {"windows": 0, "macos": 1, "linux": 2}
_FOCUSABLE = {"button", "text_field", "check_box", "list", "row", "menu_item"}


def scan(performance: Performance, platform: Platform, at_ms: int, number: int) -> dict[str, Any]:
    """Returns the log line of a scan, which shows the screen at the start time `at_ms`."""
    desktop = performance.desktop
    moment = performance.timeline.at(at_ms)
    random = Random(f"scan {number}")
    placed = list(desktop.placed(moment.state))
    texts = dict(moment.state.texts)
    hits = {"cursor": moment.pointer}
    for name in ("random1", "random2"):
        hits[name] = (random.randrange(desktop.width), random.randrange(desktop.height))
    queries = {}
    for name, (x, y) in hits.items():
        under = [p for p in placed if p.visible and p.box.contains(x, y)]
        element = _root(desktop, platform)
        if under:
            element = _node(under[-1], platform, texts)
        queries[name] = {"element": element, "position": {"x": x, "y": y}}
    focus = [p for p in placed if p.name == moment.state.focused and p.visible]
    focused_element = _root(desktop, platform)
    if focus:
        focused_element = _node(focus[0], platform, texts)
    data = {
        "duration": random.randint(150, 600),
        "focused_element": focused_element,
        "queries": queries,
        "tree": [_nested(desktop, placed, platform, texts)],
    }
    return {"event": "axtree", "data": data, "time": at_ms}


def pad(line: dict[str, Any], nodes: int, platform: Platform) -> None:
    """Adds a document of `nodes` texts, about 260 bytes each, below the screen to a scan."""
    role = _ROLES["label"][_COLUMN[platform]]
    boxes = [Box(0, 100_000 + 20 * index, 400, 20) for index in range(nodes)]
    lines = [
        node(role, f"Ledger entry {index:05d}", box, visible=False)
        for index, box in enumerate(boxes)
    ]
    pane = _ROLES["pane"][_COLUMN[platform]]
    ledger = node(pane, "Ledger", Box(0, 100_000, 400, 20 * nodes), visible=False)
    ledger["children"] = lines
    line["data"]["tree"].append(ledger)


def node(
    role: str,
    name: str,
    box: Box,
    *,
    value: str = "",
    focusable: bool = False,
    visible: bool = True,
) -> Node:
    """Returns a node of an axtree event without children."""
    return {
        "bbox": {"height": box.height, "width": box.width, "x": box.x, "y": box.y},
        "children": [],
        "description": "",
        "name": name,
        "role": role,
        "states": {"enabled": True, "keyboard_focusable": focusable, "visible": visible},
        "value": value,
    }


def _root(desktop: Desktop, platform: Platform) -> Node:
    role = _ROLES["pane"][_COLUMN[platform]]
    return node(role, "Desktop", Box(0, 0, desktop.width, desktop.height))


def _node(thing: Placed, platform: Platform, texts: dict[str, str]) -> Node:
    name = texts.get(thing.name, thing.label) if thing.kind == "label" else thing.label
    return node(
        _ROLES[thing.kind][_COLUMN[platform]],
        name,
        thing.box,
        value=texts.get(thing.name, "") if thing.kind == "text_field" else "",
        focusable=thing.kind in _FOCUSABLE,
        visible=thing.visible,
    )


def _nested(
    desktop: Desktop, placed: list[Placed], platform: Platform, texts: dict[str, str]
) -> Node:
    """Returns the whole tree with the windows from front to back, like UI Automation."""
    root = _root(desktop, platform)
    by_name = {"": root}
    windows: list[Node] = []
    for thing in placed:
        element = _node(thing, platform, texts)
        by_name[thing.name] = element
        if thing.kind in {"window", "menu"}:
            windows.append(element)
        else:
            by_name[_owner(thing)]["children"].append(element)
    root["children"] = windows[::-1] + root["children"]
    return root


def _owner(thing: Placed) -> str:
    return thing.widget.name if thing.kind in {"row", "title_bar"} else thing.widget.parent


def scans(
    performance: Performance, platform: Platform, every_ms: int, padding: int = 0
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the time of writing and the log line of every scan that ends within the recording.

    A scan begins `every_ms` after the start of the previous scan, but not before the previous scan
    has ended.
    """
    at_ms = performance.start_ms + 120
    number = 0
    while True:
        line = scan(performance, platform, at_ms, number)
        ends = at_ms + line["data"]["duration"]
        if ends > performance.end_ms:
            return
        if padding:
            pad(line, padding, platform)
        yield ends, line
        at_ms = max(at_ms + every_ms, ends)
        number = number + 1
