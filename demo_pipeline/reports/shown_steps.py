"""Steps as notebooks and pages show them: a picture, a sheet of pictures, a video clip, HTML.

Outside of pictures there is no typed text, and no name of an element, because a name may be the
content of its field.
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

# Columns of the provenance that a person asks about a step.
STEP_FACTS = (
    *("reason_code", "lead_ms", "leak", "unavoidable", "pointer_distance_px", "freshness"),
    *("tree_agreement", "tree_age_ms", "clock_method", "clock_uncertainty_ms", "hidden_before"),
)
_JPEG = "image/jpeg"
_VIDEO = "video/mp4"
_MILLISECOND = Fraction(1, 1000)
_CLIP_RATE = 30  # frames a second that the encoder plans for; frames keep their own times
_ENCODER_OPTIONS = {"preset": "veryfast"}
_TABLE_TILES = 12
_TABLE_WIDTH = 320


@dataclass(frozen=True)
class Shown:
    """A picture or a video clip that a notebook displays.

    Attributes:
        data: the bytes of a file.
        kind: `image/jpeg` or `video/mp4`.
    """

    data: bytes = field(repr=False)
    kind: str = _JPEG

    def save(self, path: str | Path) -> None:
        """Write it to a file."""
        Path(path).write_bytes(self.data)

    @property
    def html(self) -> str:
        """An HTML element that contains the whole file."""
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
    """The screenshot of a step, `width` pixels wide, with its action and target drawn on it."""
    return Shown(encode_jpeg(tile_picture(step_tile(step, row), width), quality))


def sheet_of(tiles: Sequence[Tile], columns: int, width: int, title: str = "") -> Shown:
    """Tiles of steps as one picture."""
    return Shown(encode_jpeg(contact_sheet(tiles, columns, width, title)))


def film_clip(video: Path, span: Span) -> Shown:
    """A stretch of a video as an MP4 file (H.264), with the times of its frames.

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
        raise StorageError("the video has no frame there")
    return Shown(data.getvalue(), _VIDEO)


def step_html(step: StepFiles, row: ProvenanceRow) -> str:
    """A step with its picture and a table of facts about its screenshot."""
    facts = {}
    if step.action.target_element:
        facts["target"] = step.action.target_element.role
    for name in STEP_FACTS:
        if row[name] is not None:
            facts[name] = row[name]
    title = f"{row['trajectory_id']} · {step.index} {step.action.action_type}"
    picture = step_picture(step, row, 960).html
    return f"<b>{escape(title)}</b><br>{picture}{_table([facts])}"


def trajectory_html(
    words: Sequence[str], steps: Sequence[StepFiles], rows: Sequence[ProvenanceRow]
) -> str:
    """A trajectory with up to twelve pictures, spread over it, and a table with a row a step.

    Args:
        words: lines above it.
        steps: of the trajectory.
        rows: the provenance of each step.
    """
    last = len(steps) - 1
    number = min(len(steps), _TABLE_TILES)
    places = sorted({round(tile * last / max(1, number - 1)) for tile in range(number)})
    tiles = [step_tile(steps[place], rows[place]) for place in places]
    columns = ("action_type", "reason_code", "lead_ms", "leak", "freshness")
    lines = [{"step": row["step_index"], **_chosen(row, columns)} for row in rows]
    sheet = sheet_of(tiles, 4, _TABLE_WIDTH).html if tiles else ""
    above = f'<div style="white-space:pre-wrap">{escape(chr(10).join(words))}</div>'
    return f'{above}{sheet}<div style="max-height:20em;overflow:auto">{_table(lines)}</div>'


def _chosen(row: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    return {name: row[name] for name in columns}


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """An HTML table; its columns are the keys of the first row."""
    head = "".join(f"<th>{escape(name)}</th>" for name in (rows[0] if rows else ()))
    body = ""
    for row in rows:
        cells = ["" if value is None else escape(str(value)) for value in row.values()]
        body += f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    return f"<table><tr>{head}</tr>{body}</table>"
