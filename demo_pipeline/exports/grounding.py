"""Exports grounding rows: a screenshot, words that name one of its elements, and where it is.

Belongs here: the model of a row of `<split>.parquet`, the entry of `screenspot/<split>.json` that
every row has, which steps have a tree that says what their screenshot shows, the rows, the same
rows in CUA-Lite's form (calls `point` and `bbox`), and reading an answer. The box convention is
ScreenSpot-Pro's: [x1, y1, x2, y2] in pixels, both ends inside the element; a refusal is `null`.
Which elements are asked for is decided in grounding_elements.py.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from demo_pipeline.datasets.record_forms import (
    Excluded,
    Form,
    KeptRecord,
    Record,
    RecordSource,
    Table,
)
from demo_pipeline.datasets.selection import BAD_STEP, Candidate
from demo_pipeline.datasets.splits import Split
from demo_pipeline.desktopd.models import ActionType, ClickParameters, Role, TypeParameters
from demo_pipeline.desktopd.trajectory_reader import StepFiles, json_problem
from demo_pipeline.exports.answers import (
    Answer,
    AnswerFormatError,
    ForeignAction,
    answered,
    parse_answer,
)
from demo_pipeline.exports.cua_lite import (
    LITE_SYSTEMS,
    LITE_TABLE,
    content_name,
    kept_lite,
    lite_call,
    lite_files,
    lite_image,
    lite_row,
    placed_row,
    validate_cua_lite,
)
from demo_pipeline.exports.cua_lite_actions import BBOX, POINT, decode_cua_lite_answer
from demo_pipeline.exports.cudag.models import GENERATOR, cudag_id, to_ru
from demo_pipeline.exports.grounding_elements import (
    ELEMENT_EXCLUSIONS,
    NamedElement,
    choose_elements,
    read_screen,
)
from demo_pipeline.exports.record_checks import (
    REBUILD,
    Fault,
    NamedFiles,
    RecordFormat,
    checked_records,
    row_schema,
    schema_writer,
    split_files,
    validate_split_tables,
)
from demo_pipeline.exports.step_facts import CANVAS, STEP_SETTINGS
from demo_pipeline.files.base_model import Document, limited
from demo_pipeline.files.json_files import JsonFileError, load_json
from demo_pipeline.files.parquet import open_rows
from demo_pipeline.files.shown_text import replace_surrogates
from demo_pipeline.problems import Problem, errors
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.pointer_leaks import LEAK_EXCLUSIONS, leak_exclusion
from demo_pipeline.trajectories.provenance import INCOMPLETE, has_picture
from demo_pipeline.trajectories.step_sentences import TypedTexts

GROUNDING_SCHEMA_FILE = "grounding.schema.json"
SCREENSPOT_FOLDER = "screenspot"
LITE_FOLDER = "cua_lite"  # the root of the rows in CUA-Lite's form

_Pixels = Annotated[int, Field(ge=0)]
InclusiveBox = tuple[int, int, int, int]


class GroundingRow(Document):
    """An element that can be seen, and that no other element of the screen is named like."""

    id: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    trajectory_id: str
    step_index: int = Field(ge=0, description="0-based, of the screenshot")
    application: str
    platform: str = Field(description="windows, macos, linux")
    text: str = Field(min_length=1, description="names the element, as in `the Save button`")
    role: str = Field(description="OSWorld-Desktopd role")
    box: list[_Pixels] = Field(
        min_length=4, max_length=4, description="[x1, y1, x2, y2], inclusive"
    )
    point: list[_Pixels] = Field(min_length=2, max_length=2, description="[x, y], the centre")
    image_size: list[_Pixels] = Field(min_length=2, max_length=2, description="[width, height]")
    image: str = Field(description="screenshot: a path below the folder")


def box_centre(box: InclusiveBox) -> tuple[int, int]:
    """The middle pixel of a box; of two the upper left one."""
    return (box[0] + box[2]) // 2, (box[1] + box[3]) // 2


def decode_point_text(text: str, size: tuple[int, int]) -> Answer:
    """The left click that an answer means: at the point, or in the middle of the box.

    A refusal is a `failure` without an action.

    Raises:
        AnswerFormatError: the text is nothing of these, or not in the picture.
    """
    value = parse_answer(text)
    if value is None:
        return Answer((), status="failure")
    if not isinstance(value, list) or len(value) not in {2, 4} or not all(map(_is_finite, value)):
        raise AnswerFormatError("no list of two or four numbers")
    corners = [value[:2], value[-2:]]
    if not all(0 <= x < size[0] and 0 <= y < size[1] for x, y in corners):
        raise AnswerFormatError("not in the picture")
    (left, top), (right, bottom) = corners
    if left > right or top > bottom:
        raise AnswerFormatError("a box that ends before it begins")
    x, y = math.floor((left + right) / 2), math.floor((top + bottom) / 2)
    return Answer((answered(ClickParameters(x=x, y=y)),))


def lite_point(point: Sequence[int], size: Sequence[int]) -> list[int]:
    """A point as the coordinate of CUA-Lite's `point`, 0 to 1000 on each axis."""
    return list(to_ru(point[0], point[1], (size[0], size[1])))


def lite_box(box: Sequence[int], size: Sequence[int]) -> list[int]:
    """A box as the coordinate of CUA-Lite's `bbox`, 0 to 1000 on each axis."""
    return [*lite_point(box[:2], size), *lite_point(box[2:], size)]


def decode_lite_grounding(text: str, size: tuple[int, int]) -> Answer:
    """The left click that an answer in CUA-Lite's form means: a `point`, a `bbox` or a `computer`.

    Raises:
        AnswerFormatError: as `decode_cua_lite_answer`; also for more than one place.
    """
    answer = decode_cua_lite_answer(text, size)
    places = [
        action.point
        for action in answer.actions
        if isinstance(action, ForeignAction) and action.name in {POINT, BBOX}
    ]
    if not places:
        return answer
    if len(answer.actions) > 1 or places[0] is None:
        raise AnswerFormatError("more than one place")
    x, y = map(round, places[0])
    return replace(answer, actions=(answered(ClickParameters(x=x, y=y)),))


def _is_finite(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) < 2**31


def validate_grounding(root: Path) -> list[Problem]:
    """The problems of a grounding export."""
    problems = validate_split_tables(root, {"*.parquet": GROUNDING_FORMAT})
    if errors(problems):
        return problems
    for split, _ in split_files(root, "*.parquet"):
        problems += limited(list(_entry_problems(root, split)))
    return [*problems, *validate_cua_lite(root / LITE_FOLDER)]


def _faults(row: GroundingRow, files: NamedFiles) -> Iterator[Fault]:
    (left, top, right, bottom), picture = row.box, files.picture(row.image)
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


def _entry_problems(root: Path, split: str) -> Iterator[Problem]:
    """Yield how a task file differs from the table of its split."""
    name = f"{SCREENSPOT_FOLDER}/{split}.json"
    try:
        entries = load_json(root / name, name)
    except JsonFileError as error:
        yield json_problem(error, exists=(root / name).is_file())
        return
    with open_rows(root / f"{split}.parquet", 512) as (count, rows):
        if not isinstance(entries, list) or len(entries) != count:
            message = f"must be a list of {count} entries, one per row of the table"
            yield Problem("entries_differ", name, message, remedy=REBUILD)
            return
        for number, (entry, row) in enumerate(zip(entries, rows, strict=True), start=1):
            if entry != _screenspot_entry(row):
                message = f"entry {number}: differs from row {number} of the table"
                yield Problem("entries_differ", name, message, number, remedy=REBUILD)


def _lite_rows(row: Mapping[str, Any], screenshot: Path) -> Mapping[str, Any]:
    """A row of the grounding export in CUA-Lite's form, by the tool that answers it."""
    size = row["image_size"]
    coordinates = {POINT: lite_point(row["point"], size), BBOX: lite_box(row["box"], size)}
    asked = [{"type": "image", "index": 0}, {"type": "text", "text": row["text"]}]
    known = {
        "resolution": size,
        "os": LITE_SYSTEMS.get(row["platform"]),
        "source": GENERATOR,
        "source_id": row["trajectory_id"],
        "domain": row["application"],
    }
    made = {}
    for tool, coordinate in coordinates.items():
        calls = [lite_call(0, tool, {"coordinate": coordinate})]
        turns: list[dict[str, Any]] = [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": [], "tool_calls": calls},
        ]
        others = {"id": f"{row['id']}_{tool}", **known}
        made[tool] = lite_row([screenshot], turns, _dims(tool), others)
    return made


def _dims(tool: str) -> tuple[str, str]:
    return "desktop", f"grounding.{tool}"


_WORDS = frozenset(
    {
        *("label", "menuitem", "menu", "link", "tab", "listitem", "treeitem", "tablecell"),
        *("checkbox", "radiobutton"),
    }
)
_PICTURES = frozenset({"icon", "image"})


def _screenspot_entry(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as an entry of a task file in the form of ScreenSpot-Pro."""
    role = row["role"]
    return {
        "id": row["id"],
        "img_filename": row["image"],
        "img_size": row["image_size"],
        "bbox": row["box"],
        "instruction": row["text"],
        "platform": row["platform"],
        "application": row["application"],
        "group": row["application"],
        # Whether an element shows its name; a button may show either.
        "ui_type": "text" if role in _WORDS else "icon" if role in _PICTURES else "unknown",
    }


# Why a screenshot gives no row; each stands for one screenshot, `ELEMENT_EXCLUSIONS` for elements.
_SCREEN_EXCLUSIONS = (
    *("missing_frame", INCOMPLETE, *LEAK_EXCLUSIONS, "hidden_typing"),
    *("tree_differs", "tree_unchecked", "scan_after_frame", "unreadable_tree"),
)
_REPEATED = "repeated"  # the same element was asked for at an earlier step


def _records(made_of: RecordSource) -> Iterator[Record | Excluded]:
    """Yield a row per element that is asked for."""
    seen: set[tuple[str, tuple[int, ...]]] = set()
    settings = made_of.settings
    did = (step.action.parameters for step in made_of.trajectory.steps)
    typed = TypedTexts(one.text for one in did if isinstance(one, TypeParameters))
    for step in made_of.trajectory.steps:
        row = made_of.rows[step.index]
        reason = _screen_exclusion(made_of, step)
        screen = None if reason else read_screen(step.ui_tree, row["platform"])
        if screen is None:
            yield Excluded(reason or "unreadable_tree")
            continue
        across, down = round(row["pad_x"]), round(row["pad_y"])
        area = (across, down, CANVAS[0] - across, CANVAS[1] - down)
        side, most = settings.grounding_min_side, settings.grounding_per_screen
        elements, left_out = choose_elements(screen, area, typed, side, most)
        yield from map(Excluded, left_out.elements())
        for node, words in elements:
            key = (words, node.box)
            yield Excluded(_REPEATED) if key in seen else _record(made_of, step, (node, words))
            seen.add(key)


def _screen_exclusion(made_of: RecordSource, step: StepFiles) -> str:
    """Why a step's tree may not say what its screenshot shows; empty when it does."""
    candidate, row = made_of.candidate, made_of.rows[step.index]
    if not has_picture(row) or not step.screenshot.is_file() or not step.ui_tree.is_file():
        return "missing_frame"
    if step.index in candidate.bad_steps | candidate.incomplete:
        return BAD_STEP if step.index in candidate.bad_steps else INCOMPLETE
    if reason := leak_exclusion(row, made_of.settings):
        return reason
    before = (one for one in candidate.hidden.actions if one.before_step <= step.index)
    if any(one.action_type == ActionType.TYPE for one in before):
        return "hidden_typing"  # its text is not known, and may be on the screen
    if row["tree_agreement"] != "agrees":
        return "tree_differs" if row["tree_agreement"] == "differs" else "tree_unchecked"
    age, lead = row["tree_age_ms"], row["lead_ms"]
    return "" if age is not None and lead is not None and age >= lead else "scan_after_frame"


def _record(made_of: RecordSource, step: StepFiles, element: NamedElement) -> Record:
    (node, words), image = element, made_of.name(step.screenshot)
    left, top, right, bottom = node.box
    box = left, top, right - 1, bottom - 1
    text = replace_surrogates(words)
    row: dict[str, Any] = {
        "id": f"{cudag_id(made_of.trajectory.id)}_{step.index:03d}_{node.id}",
        "trajectory_id": made_of.id,
        "step_index": step.index,
        "application": made_of.application,
        "platform": made_of.rows[step.index]["platform"],
        "text": text,
        "role": node.role,
        "box": list(box),
        "point": list(box_centre(box)),
        "image_size": list(CANVAS),
        "image": image,
    }
    parts = {"row": row, "entry": _screenspot_entry(row), **_lite_rows(row, step.screenshot)}
    content = {f"{LITE_FOLDER}/{content_name(step.screenshot)}": step.screenshot}
    files = {image: step.screenshot, **content}
    return Record(row["id"], text, step.screenshot, parts, files)


def _pictures(
    candidate: Candidate, split: Split, record: KeptRecord, settings: DatasetSettings
) -> Mapping[str, str]:
    """The screenshot by its name, and by its content for CUA-Lite."""
    found = {}
    for name, path in record.files.items():
        content = name.removeprefix(f"{LITE_FOLDER}/")
        image = lite_image(settings.name_prefix, split, content)
        place = name if content == name else f"{LITE_FOLDER}/{image}"
        found[place] = f"{candidate.source.folder}/{path}"
    return found


_TOOLS = (POINT, BBOX)
GROUNDING_FORM = Form(
    name="grounding",
    code_version="7",
    settings=("max_hidden_share", *STEP_SETTINGS, "grounding_per_screen", "grounding_min_side"),
    unit="samples",
    exclusions=(*_SCREEN_EXCLUSIONS, *ELEMENT_EXCLUSIONS, _REPEATED),
    records=_records,
    files=lambda split, settings: {
        "row": (f"{split.value}.parquet",),
        "entry": (f"{SCREENSPOT_FOLDER}/{split.value}.json",),
        **{
            tool: (f"{LITE_FOLDER}/{lite_files(settings.name_prefix, _dims(tool), split)}",)
            for tool in _TOOLS
        },
    },
    written=lambda split, part: (
        split is Split.TRAIN or (split is not Split.HELD_OUT and part not in _TOOLS)
    ),
    tables=lambda _: {"row": Table(row_schema(GroundingRow)), **dict.fromkeys(_TOOLS, LITE_TABLE)},
    row=lambda row, split, settings, folder: (
        placed_row(row, split, settings, folder) if "images" in row else row
    ),
    pictures=_pictures,
    instruction_in_prompt=lambda _: False,
    finish=schema_writer(GROUNDING_SCHEMA_FILE, GroundingRow),
    problems=checked_records(
        row=GROUNDING_FORMAT, **{tool: kept_lite(_dims(tool)) for tool in _TOOLS}
    ),
)
