"""Draws the strip at the top of the README: frames of a recording, its steps, a step as JSON."""

import base64
import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pandas as pd

from demo_pipeline.api import NotebookStore, load_store
from demo_pipeline.desktopd.models import CANVAS_HEIGHT, CANVAS_WIDTH
from demo_pipeline.trajectories.contact_sheets import step_tile, tile_picture
from demo_pipeline_tests.browser import opened_browser

Picture = np.ndarray[Any, np.dtype[np.uint8]]

RECORDING = "20261121_212358"
STEPS = (0, 1, 2, 3)  # a click into a field, typing into it, and two more clicks
AS_JSON = 2
FRAMES = 6
CROP = (slice(60, 600), slice(200, 1160))  # rows and columns of a screenshot that show the form
WIDTH = 800  # CSS pixels; the image file has twice as many pixels
_LEAD_IN_SECONDS = 0.8  # time from the first frame of the strip to the first step's frame
_LEAD_OUT_SECONDS = 1.2  # time from the last step's frame to the last frame of the strip
_STYLE = """
* { box-sizing: border-box; margin: 0 }
body { width: 800px; padding: 14px; background: #fff; color: #0f172a;
  font: 13px/1.35 "DejaVu Sans", Helvetica, Arial, sans-serif }
h2 { font-size: 15px; margin: 0 0 6px } h2 span { font-weight: normal; color: #475569 }
.row { display: flex; gap: 6px } .row > div { flex: 1; min-width: 0 }
.row img { width: 100%; display: block; border: 1px solid #cbd5e1; border-radius: 3px }
.caption { font-size: 12px; color: #334155; margin-top: 3px; overflow-wrap: anywhere }
.arrow { text-align: center; color: #64748b; font-size: 18px; line-height: 24px }
.lit img { border: 2px solid #2563eb }
pre { background: #0f172a; color: #e2e8f0; border-radius: 4px; padding: 9px 12px;
  font: 12.5px/1.45 "DejaVu Sans Mono", monospace; white-space: pre-wrap }
"""


def draw(root: Path, images: Path) -> list[Path]:
    """Writes `strip.jpg`."""
    store = load_store(root / "store")
    steps = store.steps().query(f"trajectory_id == '{RECORDING}'")
    steps = steps[steps.step_index.isin(STEPS)]
    page = "".join(_page(store, steps, root / "uploads" / RECORDING))
    picture = images / "strip.jpg"
    with opened_browser() as browser:
        tab = browser.new_page(viewport={"width": WIDTH, "height": 100}, device_scale_factor=2)
        tab.set_content(page)
        tab.screenshot(path=picture, full_page=True, type="jpeg", quality=60)
    return [picture]


def _page(store: NotebookStore, steps: pd.DataFrame, upload: Path) -> Iterator[str]:
    trajectory = store.trajectory(RECORDING)
    start = max(0.0, steps.pts.min() - _LEAD_IN_SECONDS)
    end = steps.pts.max() + _LEAD_OUT_SECONDS
    yield f"<meta charset='utf-8'><style>{_STYLE}</style>"
    recorded = f"{end - start:.0f} seconds of video, mouse and keyboard"
    yield f"<h2>A recording <span>{recorded}</span></h2>"
    yield "<div class='row'>"
    for seconds, frame in _video_frames(upload / "recording.mp4", start, end):
        yield f"<div>{_image(frame)}<div class='caption'>{seconds:.1f} s</div></div>"
    yield "</div><div class='arrow'>▼</div>"
    yield "<h2>Steps <span>the screen before each action; action and target are drawn</span></h2>"
    yield "<div class='row'>"
    for index in STEPS:
        step = trajectory.steps[index]
        frame = tile_picture(step_tile(step.files, step.provenance), CANVAS_WIDTH)
        lit = "lit" if index == AS_JSON else ""
        yield f"<div class='{lit}'>{_image(frame)}"
        yield f"<div class='caption'>{index}: {html.escape(step.action.reasoning)}</div></div>"
    yield "</div><div class='arrow'>▼</div>"
    yield f"<h2>Training data <span>step {AS_JSON} as JSON</span></h2>"
    action = trajectory.steps[AS_JSON].action.model_dump(mode="json", exclude_none=True)
    lines = [f'  "{key}": {json.dumps(value)}' for key, value in action.items()]
    yield f"<pre>{html.escape('{' + chr(10) + (',' + chr(10)).join(lines) + chr(10) + '}')}</pre>"


def _video_frames(video: Path, start: float, end: float) -> Iterator[tuple[float, Picture]]:
    """Yields `FRAMES` evenly spaced frames from `start` to `end`, with their times in seconds."""
    times = list(np.linspace(start, end, FRAMES))
    with av.open(str(video)) as container:
        for frame in container.decode(video=0):
            if times and frame.time is not None and frame.time >= times[0]:
                times.pop(0)
                yield frame.time, np.asarray(frame.to_ndarray(format="bgr24"), np.uint8)
            if not times:
                return


def _image(picture: Picture) -> str:
    canvas = cv2.resize(picture, (CANVAS_WIDTH, CANVAS_HEIGHT), interpolation=cv2.INTER_AREA)
    form = canvas[CROP]
    size = (form.shape[1] // 2, form.shape[0] // 2)
    _, data = cv2.imencode(".png", cv2.resize(form, size, interpolation=cv2.INTER_AREA))
    return f"<img src='data:image/png;base64,{base64.b64encode(data.tobytes()).decode()}'>"
