"""A small desktop for tests with a form of common widgets, and a script with most kinds of acts."""

from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from demo_pipeline_tests.simulator.desktop import Box, Desktop, Effect, Widget
from demo_pipeline_tests.simulator.recording import RecordingOptions
from demo_pipeline_tests.simulator.script import (
    Act,
    Script,
    click,
    drag,
    hotkey,
    middle_click,
    right_click,
    scroll,
    think,
    triple_click,
    type_text,
    wait_for_screen,
)
from demo_pipeline_tests.simulator.video import VideoOptions

SMALL = RecordingOptions(width=640, height=360, video=VideoOptions(preset="ultrafast", fps=15))
DESKTOP = Desktop(
    (
        Widget("Form", "window", Box(200, 100, 1200, 800)),
        Widget("Name", "text_field", Box(240, 180, 600, 50), "Form", text="old"),
        Widget("Agree", "check_box", Box(240, 260, 300, 50), "Form"),
        Widget("Rows", "list", Box(240, 340, 600, 340), "Form", rows=tuple("abcdefghijklmnopqr")),
        Widget(
            "Load",
            "button",
            Box(900, 180, 200, 60),
            "Form",
            on_click=(Effect("progress", "Loading", seconds=2.2, then=(Effect("open", "Done"),)),),
        ),
        Widget("Loading", "progress_bar", Box(240, 720, 600, 40), "Form"),
        Widget("Done", "window", Box(1450, 200, 400, 300), initially_open=False),
    )
)
ACTS = (
    click("Agree"),
    triple_click("Name"),
    type_text("Ab, c!"),
    hotkey("ctrl", "a"),
    click("Load"),
    wait_for_screen(),
    middle_click("Rows/b"),
    right_click("Rows/c"),
    scroll("Rows", 2),
    think(2.5),
    drag("Form/title bar", 60, 40),
    click("Load", held=("ctrl",)),
)


def script(*acts: Act) -> Script:
    """Returns a script of `acts` on the form, or of `ACTS` if no acts are given."""
    return Script(DESKTOP, acts or ACTS, seed=3)


def frames_of(video: Path) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yields (pts, luma) of every frame of a video in presentation order."""
    with av.open(str(video)) as container:
        for frame in container.decode(video=0):
            yield frame.pts, frame.to_ndarray()[: frame.height]
