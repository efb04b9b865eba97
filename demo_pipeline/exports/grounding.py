"""Exports grounding rows: a screenshot, words that name one of its elements, and the element's box.

Each row is written in three formats:

- as a row of `<split>.parquet`,
- as an entry of `screenspot/<split>.json` in the format of ScreenSpot-Pro,
- as two rows in the format of CUA-Lite, with a call of `point` and a call of `bbox` as answers.

Boxes are [x1, y1, x2, y2] in pixels, as in ScreenSpot-Pro; x2 and y2 are the last column and row of
the element. grounding_elements.py selects the elements.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from demo_pipeline.datasets.selection import BAD_STEP, Candidate
from demo_pipeline.datasets.splits import Split
from demo_pipeline.desktopd.models import ActionType, Role, TypeParameters
from demo_pipeline.desktopd.trajectory_reader import StepFiles
from demo_pipeline.exports.cua_lite import (
    LITE_SYSTEMS,
    content_name,
    lite_call,
    lite_file,
    lite_image,
    lite_row,
    placed_row,
)
from demo_pipeline.exports.cua_lite_actions import BBOX, POINT
from demo_pipeline.exports.cudag.models import GENERATOR, cudag_id, to_ru
from demo_pipeline.exports.form import Excluded, File, Form, KeptRow, Row, Source, Table, of_row
from demo_pipeline.exports.grounding_elements import (
    ELEMENT_EXCLUSIONS,
    NamedElement,
    choose_elements,
    read_screen,
)
from demo_pipeline.exports.hub_layout import HubTable
from demo_pipeline.exports.native_pictures import NativePicture, native_picture_of
from demo_pipeline.exports.record_checks import (
    Fault,
    NamedFiles,
    RecordFormat,
    row_schema,
    schema_file,
)
from demo_pipeline.exports.step_facts import CANVAS, STEP_SETTINGS
from demo_pipeline.files.base_model import Document
from demo_pipeline.files.shown_text import replace_surrogates
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.pointer_leaks import LEAK_EXCLUSIONS, leak_exclusion
from demo_pipeline.trajectories.provenance import INCOMPLETE, has_picture
from demo_pipeline.trajectories.step_sentences import TypedTexts

GROUNDING_SCHEMA_FILE = "grounding.schema.json"
SCREENSPOT_FOLDER = "screenspot"
LITE_FOLDER = "cua_lite"  # folder of the rows in CUA-Lite's format

_Pixels = Annotated[int, Field(ge=0)]
InclusiveBox = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels; right and bottom are inside the box."""


class GroundingRow(Document):
    """A visible element of a screenshot, and words that name this element and no other.

    The box, the point and the size are in pixels of the image.
    """

    id: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    trajectory_id: str
    step_index: int = Field(ge=0, description="0-based index of the screenshot's step")
    application: str
    platform: str = Field(description="windows, macos or linux")
    text: str = Field(
        min_length=1, description="words that name the element, such as `the Save button`"
    )
    role: str = Field(description="the element's role in OSWorld-Desktopd")
    box: list[_Pixels] = Field(
        min_length=4,
        max_length=4,
        description="[x1, y1, x2, y2]; x2 and y2 are the last column and row of the element",
    )
    point: list[_Pixels] = Field(
        min_length=2, max_length=2, description="[x, y], the centre of the box"
    )
    image_size: list[_Pixels] = Field(
        min_length=2, max_length=2, description="[width, height] of the image"
    )
    image: str = Field(description="path of the screenshot, relative to the folder of the export")


def box_centre(box: InclusiveBox) -> tuple[int, int]:
    """Returns the middle pixel of a box. Of two middle rows or columns, the first is used."""
    return (box[0] + box[2]) // 2, (box[1] + box[3]) // 2


def lite_point(point: Sequence[int], size: Sequence[int]) -> list[int]:
    """Converts a point to the argument `coordinate` of CUA-Lite's call `point`.

    Args:
        point: x and y, pixels.
        size: width and height of the image, pixels.

    Returns:
        x and y, 0 to 1000.
    """
    return list(to_ru(point[0], point[1], (size[0], size[1])))


def lite_box(box: Sequence[int], size: Sequence[int]) -> list[int]:
    """Converts a box to the argument `coordinate` of CUA-Lite's call `bbox`.

    Args:
        box: left, top, right and bottom (inclusive), pixels.
        size: width and height of the image, pixels.

    Returns:
        Left, top, right and bottom, 0 to 1000.
    """
    return [*lite_point(box[:2], size), *lite_point(box[2:], size)]


def _faults(row: GroundingRow, files: NamedFiles) -> Iterator[Fault]:
    """Yields faults of the box, point, role and image that `GroundingRow` cannot detect."""
    left, top, right, bottom = row.box
    picture = files.picture(row.image)
    if not isinstance(picture, str) and [picture.width, picture.height] != row.image_size:
        yield Fault("image_size", "image_size: differs from the size of the picture")
    if left > right or top > bottom:
        yield Fault("box", "box: ends before it begins")
    if right >= row.image_size[0] or bottom >= row.image_size[1]:
        yield Fault("box", "box: is not in the picture")
    if not (left <= row.point[0] <= right and top <= row.point[1] <= bottom):
        yield Fault("point", "point: is not in the box")
    if row.role not in set(Role):
        yield Fault("role", "role: is not known")
    if not row.image.startswith(f"trajectories/{row.trajectory_id}/steps/{row.step_index:03d}/"):
        yield Fault("wrong_step", "image: is of another step")


GROUNDING_FORMAT = RecordFormat(GroundingRow, lambda row: [("image", row.image)], _faults)


def _lite_rows(row: Mapping[str, Any], screenshot: Path) -> Mapping[str, Any]:
    """Returns a dictionary from each tool to the CUA-Lite row whose answer calls the tool."""
    size = row["image_size"]
    coordinates = {POINT: lite_point(row["point"], size), BBOX: lite_box(row["box"], size)}
    question = [{"type": "image", "index": 0}, {"type": "text", "text": row["text"]}]
    shared = {
        "resolution": size,
        "os": LITE_SYSTEMS.get(row["platform"]),
        "source": GENERATOR,
        "source_id": row["trajectory_id"],
        "domain": row["application"],
    }
    rows = {}
    for tool, coordinate in coordinates.items():
        calls = [lite_call(0, tool, {"coordinate": coordinate})]
        turns: list[dict[str, Any]] = [
            {"role": "user", "content": question},
            {"role": "assistant", "content": [], "tool_calls": calls},
        ]
        others = {"id": f"{row['id']}_{tool}", **shared}
        rows[tool] = lite_row([screenshot], turns, _dims(tool), others)
    return rows


def _dims(tool: str) -> tuple[str, str]:
    """Returns CUA-Lite's platform and task type for a tool."""
    return "desktop", f"grounding.{tool}"


# Roles of elements that show their name as text, and of elements that show an image.
_TEXT_ROLES = frozenset(
    {
        *("label", "menuitem", "menu", "link", "tab", "listitem", "treeitem", "tablecell"),
        *("checkbox", "radiobutton"),
    }
)
_IMAGE_ROLES = frozenset({"icon", "image"})


def _screenspot_entry(row: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a grounding row to an entry of a ScreenSpot-Pro task file."""
    ui_type = "unknown"
    if row["role"] in _TEXT_ROLES:
        ui_type = "text"
    elif row["role"] in _IMAGE_ROLES:
        ui_type = "icon"
    return {
        "id": row["id"],
        "img_filename": row["image"],
        "img_size": row["image_size"],
        "bbox": row["box"],
        "instruction": row["text"],
        "platform": row["platform"],
        "application": row["application"],
        "group": row["application"],
        "ui_type": ui_type,
    }


# Reasons to leave out a whole screenshot; `ELEMENT_EXCLUSIONS` are reasons to leave out an element.
_SCREEN_EXCLUSIONS = (
    *("missing_frame", INCOMPLETE, *LEAK_EXCLUSIONS, "hidden_typing"),
    *("tree_differs", "tree_unchecked", "scan_after_frame", "unreadable_tree"),
)
_REPEATED = "repeated"  # an earlier screenshot has an element with the same words and box


def _rows(source: Source) -> Iterator[Row | Excluded]:
    """Yields a row for each selected element of each usable screenshot."""
    earlier_elements: set[tuple[str, tuple[int, ...]]] = set()
    settings = source.settings
    typed = TypedTexts(_typed_texts(source.trajectory.steps))
    for step in source.trajectory.steps:
        row = source.rows[step.index]
        if reason := _screen_exclusion(source, step):
            yield Excluded(reason)
            continue
        screen = read_screen(step.ui_tree, row["platform"])
        if screen is None:
            yield Excluded("unreadable_tree")
            continue
        pad_x = round(row["pad_x"])
        pad_y = round(row["pad_y"])
        area = (pad_x, pad_y, CANVAS[0] - pad_x, CANVAS[1] - pad_y)
        native = native_picture_of(step.screenshot)
        min_side = float(settings.grounding_min_side)
        if native:
            min_side *= native.scale
        most = settings.grounding_per_screen
        elements, left_out = choose_elements(screen, area, typed, min_side, most)
        yield from map(Excluded, left_out.elements())
        for node, words in elements:
            key = (words, node.box)
            if key in earlier_elements:
                yield Excluded(_REPEATED)
            else:
                yield _row(source, step, (node, words), native)
            earlier_elements.add(key)


def _typed_texts(steps: Sequence[StepFiles]) -> Iterator[str]:
    """Yields the typed text of each step that types text."""
    for step in steps:
        if isinstance(step.action.parameters, TypeParameters):
            yield step.action.parameters.text


def _screen_exclusion(source: Source, step: StepFiles) -> str:
    """Returns why a step's screenshot has no rows; empty if the screenshot can be used."""
    candidate = source.candidate
    row = source.rows[step.index]
    if not has_picture(row) or not step.screenshot.is_file() or not step.ui_tree.is_file():
        return "missing_frame"
    if step.index in candidate.bad_steps:
        return BAD_STEP
    if step.index in candidate.incomplete:
        return INCOMPLETE
    if reason := leak_exclusion(row, source.settings):
        return reason
    for action in candidate.hidden.actions:
        if action.before_step <= step.index and action.action_type == ActionType.TYPE:
            return "hidden_typing"  # the screen may show the typed text, which is unknown
    if row["tree_agreement"] == "differs":
        return "tree_differs"
    if row["tree_agreement"] not in ("agrees", "partial"):
        return "tree_unchecked"
    tree_age = row["tree_age_ms"]
    lead = row["lead_ms"]
    if tree_age is None or lead is None or tree_age < lead:
        return "scan_after_frame"
    return ""


def _row(
    source: Source, step: StepFiles, element: NamedElement, native: NativePicture | None
) -> Row:
    """Returns the grounding row of an element.

    Args:
        step: the step whose screenshot shows the element.
        element: the element and the words that name it.
        native: the native screenshot to use in the row; None if it does not exist.
    """
    node, words = element
    left, top, right, bottom = node.box
    screenshot = step.screenshot
    size = CANVAS
    if native:
        screenshot = native.path
        size = native.size
        left, top = native.at(left, top)
        right, bottom = native.at(right, bottom)
    image = source.name(screenshot)
    box = left, top, right - 1, bottom - 1
    text = replace_surrogates(words)
    row: dict[str, Any] = {
        "id": f"{cudag_id(source.trajectory.id)}_{step.index:03d}_{node.id}",
        "trajectory_id": source.id,
        "step_index": step.index,
        "application": source.application,
        "platform": source.rows[step.index]["platform"],
        "text": text,
        "role": node.role,
        "box": list(box),
        "point": list(box_centre(box)),
        "image_size": list(size),
        "image": image,
    }
    parts = {"row": row, "entry": _screenspot_entry(row), **_lite_rows(row, screenshot)}
    content = {f"{LITE_FOLDER}/{content_name(screenshot)}": screenshot}
    files = {image: screenshot, **content}
    return Row(row["id"], text, screenshot, parts, files)


def _pictures(
    candidate: Candidate, split: Split, record: KeptRow, settings: DatasetSettings
) -> Mapping[str, str]:
    """Returns a row's images: a mapping from names in the dataset to source files.

    The screenshot is in the dataset twice: at its usual path, and at its path in `cua_lite/`.
    """
    paths = {}
    for name, path in record.files.items():
        content = name.removeprefix(f"{LITE_FOLDER}/")
        image = lite_image(settings.name_prefix, split, content)
        place = name if content == name else f"{LITE_FOLDER}/{image}"
        paths[place] = f"{candidate.source.folder}/{path}"
    return paths


FORM = Form(
    name="grounding",
    asset="grounding_dataset",
    folder="grounding",
    description="Rows with a screenshot, words that name an element, and the element's box "
    "and centre. The elements are visible and can be told apart, and their trees "
    "agree with the screenshot.",
    code_version="14",
    kinds=frozenset({"json", "parquet"}),
    settings=(*STEP_SETTINGS, "grounding_per_screen", "grounding_min_side"),
    exclusions=(*_SCREEN_EXCLUSIONS, *ELEMENT_EXCLUSIONS, _REPEATED),
    rows=_rows,
    files=(
        File(
            "row",
            "{split}.parquet",
            lambda _: Table(row_schema(GroundingRow)),
            checked=GROUNDING_FORMAT,
            config="default",
        ),
        File("entry", f"{SCREENSPOT_FOLDER}/{{split}}.json"),
        *(lite_file(tool, _dims(tool), LITE_FOLDER) for tool in (POINT, BBOX)),
    ),
    check="grounding_schema",
    kind_of=of_row("row", "role"),
    marks=(GROUNDING_SCHEMA_FILE,),
    place=lambda row, split, settings, folder: (
        placed_row(row, split, settings, folder) if "images" in row else row
    ),
    pictures=_pictures,
    side_files=schema_file(GROUNDING_SCHEMA_FILE, GroundingRow),
    hub=(
        HubTable(
            "grounding",
            "a named element of a screenshot with its box (`[x1, y1, x2, y2]` in pixels; both ends "
            "are inside the box) and its centre",
            pictures=("image",),
            task_categories=("image-text-to-text", "zero-shot-object-detection"),
        ),
    ),
)
