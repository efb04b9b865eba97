"""The files of a CUDAG dataset that hold its records, and their images.

Belongs here: opening, filling and closing them, what a kept part has of them; links, copies, JPEG
and annotation of images. What a record holds is decided in records.py.
"""

import json
import math
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import cv2

from demo_pipeline.datasets.export_parts import Part, kept_parts, make_links
from demo_pipeline.datasets.splits import Split
from demo_pipeline.exports.cudag.actions import DRAG
from demo_pipeline.exports.cudag.models import CudagMetadata
from demo_pipeline.exports.cudag.records import RecordDraft
from demo_pipeline.exports.cudag.tool_calls import RU_MAX, render_tool_calls
from demo_pipeline.exports.cudag.validator import TEST_RECORDS
from demo_pipeline.files.atomic_write import link_or_copy, read_digest
from demo_pipeline.files.png import Pixels, PngRows, PngWriter
from demo_pipeline.settings import DatasetSettings

_POINT = (255, 0, 0)
_BOX = (0, 200, 0)
_MARGIN = 8  # pixels that lines and the point reach beyond the places they are drawn at
_ARROW_TIP = 0.1  # of the arrow's length


def image_suffix(settings: DatasetSettings) -> str:
    """The file extension of training images."""
    return ".jpg" if settings.image_mode == "jpeg" else ".png"


def write_training_image(source: Path, target: Path, settings: DatasetSettings) -> bool:
    """Write a training image as `image_mode` says.

    Returns:
        Whether it was written; a screenshot that cannot be decoded gives no JPEG.
    """
    if settings.image_mode != "jpeg":
        link_or_copy_image(source, target, copy=settings.image_mode == "copy")
        return True
    picture = cv2.imread(str(source), cv2.IMREAD_COLOR)
    if picture is None:
        return False
    return bool(
        cv2.imwrite(str(target), picture, [cv2.IMWRITE_JPEG_QUALITY, settings.jpeg_quality])
    )


def link_or_copy_image(source: Path, target: Path, *, copy: bool = False) -> None:
    """Write an image unchanged: as a hard link if possible and `copy` is false, else as a copy."""
    if copy:
        shutil.copyfile(source, target)
    else:
        link_or_copy(source, target)


def annotate(source: Path, target: Path, metadata: CudagMetadata) -> bool:
    """Draw the target point, its tolerance and the path of a drag on a copy of the screenshot.

    The target point of a drag is its end.

    Returns:
        Whether it was written; a screenshot that cannot be decoded is left out.
    """
    ours = PngRows.read(source)
    if ours is None:
        picture = cv2.imread(str(source), cv2.IMREAD_COLOR_RGB)
        if picture is None:
            return False
        _draw(picture, metadata)
        PngWriter().write(target, picture)
        return True
    height = ours.size[1]
    top, bottom = (min(max(0, row), height) for row in _drawn_rows(metadata))
    if top < bottom:
        rows = ours.rows(top, bottom)
        _draw(rows, metadata, top)
        ours.put(top, rows)
    ours.write(target)
    return True


def _drawn_rows(metadata: CudagMetadata) -> tuple[int, int]:
    """The first row that `_draw` may change, and the one after the last; maybe outside."""
    ys = [metadata.real_coords[1]]
    reach = max(_half(metadata)[1], 0) + _MARGIN
    if metadata.task_type == DRAG:
        ys.append(metadata.end_coords[1])
        length = math.dist(metadata.real_coords, metadata.end_coords)
        reach += math.ceil(length * _ARROW_TIP)
    return min(ys) - reach, max(ys) + reach + 1


def _draw(picture: Pixels, metadata: CudagMetadata, top: int = 0) -> None:
    """Draw on the rows of a screenshot from `top` on, of shape (rows, width, 3)."""
    start = (metadata.real_coords[0], metadata.real_coords[1] - top)
    x, y = start
    if metadata.task_type == DRAG:
        x, y = metadata.end_coords[0], metadata.end_coords[1] - top
    half_x, half_y = _half(metadata)
    cv2.rectangle(picture, (x - half_x, y - half_y), (x + half_x, y + half_y), _BOX, 2)
    if metadata.task_type == DRAG:
        cv2.arrowedLine(picture, start, (x, y), _POINT, 2, tipLength=_ARROW_TIP)
    cv2.circle(picture, (x, y), 4, _POINT, -1)


def _half(metadata: CudagMetadata) -> tuple[int, int]:
    """The tolerance in pixels, to each side."""
    width, height = metadata.image_size
    x, y = metadata.tolerance
    return round(x * width / RU_MAX), round(y * height / RU_MAX)


_FILES = {Split.TEST: "test/test.json", Split.TRAIN: "train.jsonl", Split.VAL: "val.jsonl"}


@dataclass(slots=True)
class CudagSegment:
    """What one trajectory, or a part of several, adds to a dataset.

    Attributes:
        lines: split and the bytes of its lines, in order.
        tests: entries of `test.json`.
        test_lines: bytes of `test/records.jsonl`.
        images: trajectory → image below the dataset → screenshot below the trajectory's folder.
        made: path of an image that is no screenshot → where an earlier version has it, and whether
            it may be linked; None: the file is there already.
        tasks: records by task type.
        escaped: escaped markers in prompts and in tool calls.
    """

    lines: list[tuple[str, bytes]] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)
    test_lines: bytes = b""
    images: dict[str, dict[str, str]] = field(default_factory=dict)
    made: dict[str, tuple[str, bool] | None] = field(default_factory=dict)
    tasks: Counter[str] = field(default_factory=Counter)
    escaped: Counter[str] = field(default_factory=Counter)

    @property
    def size(self) -> int:
        """Its bytes, about."""
        return sum(len(data) for _, data in self.lines) + len(self.test_lines)


class CudagFiles:
    """The open files, and the counts that the configuration shows.

    Args:
        out: the dataset's directory, with its folders.
        settings: the settings that it is made with.
        stack: closes the files.

    Attributes:
        tasks: records by task type.
        escaped: escaped markers in prompts and in tool calls.
        splits: those that have a file.
    """

    def __init__(self, out: Path, settings: DatasetSettings, stack: ExitStack) -> None:
        self._out, self._settings, self._stack = out, settings, stack
        self._files = {split.value: self._open(name) for split, name in _FILES.items()}
        self._test_records = self._open(TEST_RECORDS)
        self._tests = 0
        self._held = CudagSegment()
        self._sources: dict[str, Path] = {}
        self.tasks: Counter[str] = Counter()
        self.escaped: Counter[str] = Counter(prompts=0, tool_calls=0)

    def _open(self, name: str) -> BinaryIO:
        return self._stack.enter_context((self._out / name).open("wb"))

    @property
    def splits(self) -> set[Split]:
        """The splits that have a file."""
        return {Split(name) for name in self._files}

    def count_prompt_markers(self, count: int) -> None:
        """Count markers that were escaped in the instruction of a trajectory."""
        self._held.escaped["prompts"] += count

    def write(self, split: Split, draft: RecordDraft) -> bool:
        """Add a record and its image; False when the screenshot cannot be decoded."""
        if split is Split.TEST:
            self._write_test(draft)
        elif not self._write_record(draft, split):
            return False
        self._held.tasks[draft.metadata.task_type] += 1
        self._held.escaped["prompts"] += draft.markers
        self._held.escaped["tool_calls"] += render_tool_calls(draft.calls)[1]
        return True

    def _write_record(self, draft: RecordDraft, split: Split) -> bool:
        suffix = image_suffix(self._settings)
        name = f"images/{draft.id}{suffix}"
        if not write_training_image(draft.screenshot, self._out / name, self._settings):
            return False
        self._note_image(name, draft, is_made=suffix != ".png")
        line = draft.training_record(suffix).line() + "\n"
        self._held.lines.append((split.value, _encoded(line)))
        return True

    def _write_test(self, draft: RecordDraft) -> None:
        entry = json.dumps(draft.test().model_dump(mode="json"), ensure_ascii=False)
        self._held.tests.append(entry)
        self._held.test_lines += _encoded(draft.training_record(folder="test/").line() + "\n")
        name = f"test/images/{draft.id}.png"
        image = self._out / name
        link_or_copy_image(draft.screenshot, image, copy=self._settings.image_mode == "copy")
        self._note_image(name, draft, is_made=False)
        if draft.metadata.has_coordinate:
            annotated = f"test/annotated/{draft.id}_annotated.png"
            if annotate(image, self._out / annotated, draft.metadata):
                self._note_image(annotated, draft, is_made=True)

    def _note_image(self, name: str, draft: RecordDraft, *, is_made: bool) -> None:
        if is_made or self._settings.image_mode == "copy":
            self._held.made[name] = None
        else:
            self._sources[name] = draft.screenshot

    def end_tests(self) -> None:
        """End the array of tests."""
        self._files[Split.TEST].write(b"\n]\n" if self._tests else b"[]\n")

    def hold(self) -> None:
        """See `PartSink`; images are written at once."""
        self._held, self._sources = CudagSegment(), {}

    def take(self, trajectory: str, folder: str) -> CudagSegment:
        """See `PartSink`."""
        top = len(folder) + 1
        images = {name: str(source)[top:] for name, source in self._sources.items()}
        self._held.images[trajectory] = images
        return self._held

    def add(self, segment: CudagSegment, folders: Mapping[str, str]) -> None:
        """See `PartSink`."""
        for split, lines in segment.lines:
            if split not in self._files:
                self._files[split] = self._open(f"{split}.jsonl")
            self._files[split].write(lines)
        for entry in segment.tests:
            self._files[Split.TEST].write(_encoded((",\n" if self._tests else "[\n") + entry))
            self._tests += 1
        self._test_records.write(segment.test_lines)
        self.tasks.update(segment.tasks)
        self.escaped.update(segment.escaped)
        for name, earlier in segment.made.items():
            if earlier is not None:
                self._take_over(name, *earlier)
        if segment is not self._held:
            for trajectory, images in segment.images.items():
                make_links(str(self._out), folders[trajectory], images)

    def _take_over(self, name: str, earlier: str, may_link: bool) -> None:
        copy = self._settings.image_mode == "copy" or not may_link
        link_or_copy_image(Path(earlier), self._out / name, copy=copy)

    def linked(self, segment: CudagSegment) -> Sequence[str]:  # noqa: ARG002 - for all alike
        """See `PartSink`: its folders have images of all parts."""
        return ()

    def pack(self, segments: Sequence[CudagSegment]) -> Part:
        """See `PartSink`."""
        lines = [run for segment in segments for run in segment.lines]
        header: dict[str, Any] = {
            "lines": [(split, len(data)) for split, data in lines],
            "images": {key: value for one in segments for key, value in one.images.items()},
            "tasks": sum((segment.tasks for segment in segments), Counter()),
            "escaped": sum((segment.escaped for segment in segments), Counter()),
        }
        blobs = {
            "lines": b"".join(data for _, data in lines),
            "tests": _encoded("\n".join(entry for one in segments for entry in one.tests)),
            "test_lines": b"".join(segment.test_lines for segment in segments),
        }
        made = [name for segment in segments for name in segment.made]
        header["made"] = {name: read_digest(self._out / name).sha256 for name in made}
        return Part(header, blobs)

    def unpack(self, part: Part) -> CudagSegment | None:
        """See `PartSink`; images that are no screenshots are those of an earlier version."""
        parts = kept_parts()
        made = {
            name: parts.find_earlier(name, sha256) if parts else None
            for name, sha256 in part.header["made"].items()
        }
        if None in made.values():
            return None
        lines, start = [], 0
        for split, size in part.header["lines"]:
            lines.append((split, part.blobs["lines"][start : start + size]))
            start += size
        return CudagSegment(
            lines=lines,
            tests=part.blobs["tests"].decode().split("\n") if part.blobs["tests"] else [],
            test_lines=part.blobs["test_lines"],
            images=part.header["images"],
            made=made,
            tasks=Counter(part.header["tasks"]),
            escaped=Counter(part.header["escaped"]),
        )


def _encoded(text: str) -> bytes:
    # Lone surrogates, which no trainer's JSON reader accepts, become "?".
    return text.encode("utf-8", "replace")
