"""Tests that clicks are on their widgets in the canvas, for screens of many shapes and scales.

Each widget has a different colour, so that the screenshot shows where the widget is.
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from demo_pipeline_tests.sample_workspace import open_workspace, run_all_stages
from demo_pipeline_tests.simulator.desktop import Desktop
from demo_pipeline_tests.simulator.form import DESKTOP, script
from demo_pipeline_tests.simulator.recording import RecordingOptions, write_documents
from demo_pipeline_tests.simulator.script import Script, click, double_click, right_click
from demo_pipeline_tests.simulator.video import VideoOptions, encode

STORY = script(click("Agree"), right_click("Rows/c"), click("Name"), double_click("Load"))
TARGETS = ("Agree", "Rows/c", "Name", "Load")
VIDEO = VideoOptions(preset="ultrafast", fps=8)
TINY = "Tiny"  # a widget that only some desktops have
NOTHING = (0, 255)  # grey levels that belong to no widget: black bars and the white pointer
# Tolerance in canvas pixels. A widget's edge may lie between pixels, and chroma is subsampled.
EDGE_PX = 2.0


@dataclass(frozen=True)
class Screen:
    """The size of a screen in event space, video pixels per unit, and the monitor in meta.json."""

    width: int
    height: int
    factor: int = 1
    monitor: tuple[int, int] | None = None


SCREENS = {
    "1366x768": Screen(1366, 768),
    "2560x1440": Screen(2560, 1440),
    "3440x1440": Screen(3440, 1440),
    "2880x1800_in_points": Screen(1440, 900, 2),
    "2880x1800_in_points_monitor_in_pixels": Screen(1440, 900, 2, (2880, 1800)),
}

LIKE_OTHERS = {"2560x1440", "2880x1800_in_points_monitor_in_pixels"}


def colours() -> dict[str, tuple[int, int, int]]:
    """Returns a BGR colour for the name of each widget, with colours that are far apart."""
    names = [*sorted({thing.name for thing in DESKTOP.placed(DESKTOP.initial())}), TINY]
    levels = (30, 128, 225)
    mixed = [(b, g, r) for r, g, b in itertools.product(levels, repeat=3)]
    return dict(zip(names, mixed, strict=False))


COLOURS = colours()


def form_on(desktop: Desktop, factor: int) -> NDArray[np.uint8]:
    """Draws the form as BGR, with `factor` pixels per unit of event space."""
    image = np.zeros((desktop.height * factor, desktop.width * factor, 3), np.uint8)
    for thing in desktop.placed(desktop.initial()):
        if thing.visible:
            left = thing.box.x * factor
            top = thing.box.y * factor
            right = left + thing.box.width * factor
            bottom = top + thing.box.height * factor
            image[top:bottom, left:right] = COLOURS[thing.name]
    return image


def with_pointer(form: NDArray[np.uint8], at: tuple[int, int], size: int) -> NDArray[np.uint8]:
    """Returns the form with a white arrow whose tip is at the pixel `at`, as planar YUV 4:2:0."""
    x, y = at
    image = form.copy()
    arrow = np.array([(x, y), (x, y + size), (x + size, y + size // 2)])
    cv2.fillPoly(image, [arrow], (255, 255, 255))
    return cv2.cvtColor(image, cv2.COLOR_BGR2YUV_I420)


def write(folder: Path, screen: Screen, story: Script = STORY) -> None:
    """Writes the recording of a desktop on this screen."""
    platform: Literal["macos", "windows"] = "macos" if screen.factor > 1 else "windows"
    options = RecordingOptions(
        platform, screen.width, screen.height, VIDEO, scan_every_s=0.9, ffmpeg_start_line=True
    )
    truth = write_documents(folder, replace(story, lead_in_ms=1800), options)
    if screen.monitor:
        meta = json.loads((folder / "meta.json").read_bytes())
        meta["primary_monitor"] = dict(zip(("width", "height"), screen.monitor, strict=True))
        (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    factor = screen.factor
    form = form_on(story.desktop.at(screen.width, screen.height), factor)

    def images() -> Iterator[tuple[int, NDArray[np.uint8]]]:
        for frame in truth.frames:
            x, y = truth.timeline.at(frame.wall_ms).pointer
            yield frame.pts, with_pointer(form, (x * factor, y * factor), form.shape[0] // 70)

    size = (screen.width * factor, screen.height * factor)
    encode(folder / "recording.mp4", images(), size, VIDEO)


def things_along(line: NDArray[np.uint8]) -> list[str]:
    """Returns the widget nearest in colour to each pixel of a line; empty for no widget."""
    palette = np.array([*COLOURS.values(), *((level,) * 3 for level in NOTHING)], np.int16)
    nearest = np.abs(line[:, None].astype(np.int16) - palette).sum(axis=2).argmin(axis=1)
    names = [*COLOURS, *("" for _ in NOTHING)]
    return [names[index] for index in nearest]


def extent(things: list[str], at: int) -> tuple[int, int]:
    """Returns where the widget at a pixel of a line begins and ends."""
    first = last = at
    while first > 0 and things[first - 1] == things[at]:
        first -= 1
    while last < len(things) and things[last] == things[at]:
        last += 1
    return first, last


def node_of(tree: dict[str, Any], identifier: str) -> dict[str, Any]:
    """Returns the node with this id in the content of ui_tree.json."""
    waiting = [tree["root"]]
    while waiting:
        node = waiting.pop()
        if node["id"] == identifier:
            return node
        waiting += node.get("children", [])
    raise LookupError(identifier)


@pytest.fixture(
    scope="module",
    params=[
        *sorted(SCREENS.keys() - LIKE_OTHERS),
        *(pytest.param(name, marks=pytest.mark.minutes) for name in sorted(LIKE_OTHERS)),
    ],
)
def steps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the steps of the trajectory of a recorded screen."""
    root = tmp_path_factory.mktemp(request.param)
    write(root / "uploads" / "demo", SCREENS[request.param])
    pipeline = open_workspace(root)
    assert set(run_all_stages(pipeline, "demo").values()) == {"made"}
    folder = pipeline.store.open("trajectories/demo")[0]
    return folder / "steps"


def test_clicks_lie_on_their_widgets_in_the_canvas(steps: Path) -> None:
    """The colours in the screenshot show the target at the click, and up to its bounds."""
    folders = sorted(steps.iterdir())
    assert len(folders) == len(TARGETS)
    for folder, target in zip(folders, TARGETS, strict=True):
        action = json.loads((folder / "action.json").read_bytes())
        picture = cv2.imread(str(folder / "screenshot.png"))
        assert picture is not None
        assert picture.shape == (1080, 1920, 3)
        x = round(action["parameters"]["x"])
        y = round(action["parameters"]["y"])
        across = things_along(picture[y])
        down = things_along(picture[:, x])
        assert across[x] == target
        assert action["target_element"]["name"] == target.rpartition("/")[2]
        tree = json.loads((folder / "ui_tree.json").read_bytes())
        bounds = node_of(tree, action["target_element"]["id"])["bounds"]
        wide = (bounds["x"], bounds["x"] + bounds["width"])
        high = (bounds["y"], bounds["y"] + bounds["height"])
        assert extent(across, x) == pytest.approx(wide, abs=EDGE_PX)
        assert extent(down, y) == pytest.approx(high, abs=EDGE_PX)
