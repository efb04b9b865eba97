"""Renders steps for notebooks and reports, as images, contact sheets, video clips and HTML.

The HTML contains no typed text and no names of UI elements, because a text field's name may be its
content.
Images contain whatever was on the screen.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import av

from demo_pipeline.desktopd.trajectory_reader import StepFiles
from demo_pipeline.observation.frames.video_reader import Span, decode_spans, rgb_of
from demo_pipeline.recording.video_probe import read_packets
from demo_pipeline.store.errors import StorageError
from demo_pipeline.trajectories.contact_sheets import (
    Tile,
    contact_sheet,
    encode_jpeg,
    step_tile,
    tile_picture,
)
from demo_pipeline.trajectories.provenance import ProvenanceRow

# Columns of provenance.parquet that are listed next to the screenshot of a step.
STEP_FACTS = (
    *("reason_code", "lead_ms", "leak", "unavoidable", "pointer_distance_px", "freshness"),
    *("tree_agreement", "tree_age_ms", "clock_method", "clock_uncertainty_ms", "hidden_before"),
)
_JPEG = "image/jpeg"
_VIDEO = "video/mp4"
_MILLISECOND = Fraction(1, 1000)
_CLIP_RATE = 30  # nominal frames per second for the encoder; frames keep their own times
_ENCODER_OPTIONS = {"preset": "veryfast"}
_SHEET_TILES = 12  # maximum number of screenshots above the table of a trajectory
_SHEET_COLUMNS = 4
_SHEET_TILE_WIDTH = 320  # pixels
_STEP_WIDTH = 960  # width of the screenshot of a single step, pixels


@dataclass(frozen=True)
class Shown:
    """An image or a video clip that a notebook displays.

    Attributes:
        data: content of the JPEG or MP4 file.
        kind: media type, `image/jpeg` or `video/mp4`.
    """

    data: bytes = field(repr=False)
    kind: str = _JPEG

    def save(self, path: str | Path) -> None:
        """Writes the image or clip to a file."""
        Path(path).write_bytes(self.data)

    @property
    def html(self) -> str:
        """The HTML element that displays the image or clip, with the data embedded as base64."""
        source = f'src="data:{self.kind};base64,{b64encode(self.data).decode()}"'
        style = 'style="max-width:100%"'
        if self.kind == _VIDEO:
            return f"<video controls {style} {source}></video>"
        return f"<img {style} {source}>"

    def _repr_jpeg_(self) -> bytes | None:
        return self.data if self.kind == _JPEG else None

    def _repr_html_(self) -> str | None:
        return self.html if self.kind == _VIDEO else None


def step_picture(step: StepFiles, row: ProvenanceRow, width: int, quality: int = 85) -> Shown:
    """Returns the screenshot of a step with its action and target drawn on it.

    Args:
        width: pixels of the result.
        quality: JPEG quality, 0 to 100.
    """
    return Shown(encode_jpeg(tile_picture(step_tile(step, row), width), quality))


def sheet_of(tiles: Sequence[Tile], columns: int, width: int, title: str = "") -> Shown:
    """Returns a contact sheet of the given tiles as a JPEG.

    Args:
        tiles: the screenshots of steps, in order.
        columns: tiles per row.
        width: pixels of a tile.
        title: text above the tiles.
    """
    return Shown(encode_jpeg(contact_sheet(tiles, columns, width, title)))


def video_clip(video: Path, span: Span) -> Shown:
    """Encodes a span of a video as MP4 (H.264), with the original time between frames.

    Raises:
        StorageError: the video has no frame in the span.
        DemonstrationError: the video cannot be read.
    """
    data = BytesIO()
    stream = None
    with av.open(data, "w", format="mp4") as container:
        for frame in decode_spans(video, read_packets(video), [span]):
            pixels = rgb_of(frame)
            even = pixels[: pixels.shape[0] // 2 * 2, : pixels.shape[1] // 2 * 2]
            clip_frame = av.VideoFrame.from_ndarray(even.copy(), format="rgb24")
            if stream is None:
                size = {"width": even.shape[1], "height": even.shape[0], "pix_fmt": "yuv420p"}
                stream = container.add_stream("libx264", _CLIP_RATE, _ENCODER_OPTIONS, **size)
                stream.codec_context.time_base = _MILLISECOND
                first_time = frame.time
            clip_frame.pts = round((frame.time - first_time) / _MILLISECOND)
            clip_frame.time_base = _MILLISECOND
            container.mux(stream.encode(clip_frame))
        if stream is not None:
            container.mux(stream.encode())
    if stream is None:
        raise StorageError("the video has no frame in this span")
    return Shown(data.getvalue(), _VIDEO)


def step_html(step: StepFiles, row: ProvenanceRow) -> str:
    """Returns the HTML of a step: a title, the screenshot, and a table of facts about the step."""
    facts = {}
    if step.action.target_element:
        facts["target"] = step.action.target_element.role
    for name in STEP_FACTS:
        if row[name] is not None:
            facts[name] = row[name]
    title = f"{row['trajectory_id']} · {step.index} {step.action.action_type}"
    image = step_picture(step, row, _STEP_WIDTH).html
    return f"<b>{escape(title)}</b><br>{image}{_table([facts])}"


def trajectory_html(
    words: Sequence[str], steps: Sequence[StepFiles], rows: Sequence[ProvenanceRow]
) -> str:
    """Returns the HTML of a trajectory: lines of text, screenshots, and a table of its steps.

    At most twelve screenshots are shown: the first, the last, and others evenly between them.

    Args:
        steps: all steps in order.
        rows: the provenance of each step, in the same order.
    """
    sheet = ""
    if steps:
        tiles = [step_tile(steps[place], rows[place]) for place in _spread(len(steps))]
        sheet = sheet_of(tiles, _SHEET_COLUMNS, _SHEET_TILE_WIDTH).html
    table_rows = []
    for row in rows:
        table_row = {"step": row["step_index"]}
        for name in ("action_type", "reason_code", "lead_ms", "leak", "freshness"):
            table_row[name] = row[name]
        table_rows.append(table_row)
    above = f'<div style="white-space:pre-wrap">{escape(chr(10).join(words))}</div>'
    return f'{above}{sheet}<div style="max-height:20em;overflow:auto">{_table(table_rows)}</div>'


def _spread(length: int) -> list[int]:
    """Returns up to `_SHEET_TILES` evenly spread positions in a sequence of this length."""
    tiles = min(length, _SHEET_TILES)
    distance = (length - 1) / max(1, tiles - 1)
    return sorted({round(tile * distance) for tile in range(tiles)})


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the rows as an HTML table, with the keys of the first row as column titles."""
    head = ""
    if rows:
        head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = ""
    for row in rows:
        cells = ""
        for value in row.values():
            text = "" if value is None else escape(str(value))
            cells += f"<td>{text}</td>"
        body += f"<tr>{cells}</tr>"
    return f"<table><tr>{head}</tr>{body}</table>"
