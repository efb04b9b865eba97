"""Tests of settings for CUDAG datasets: prompts, images, files for trainers, splits."""

import json

import cv2
import pytest

from demo_pipeline.exports.cudag.dataset import dataset_directory_name
from demo_pipeline.exports.cudag.validator import validate_cudag
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import (
    CLICK,
    TABLE,
    make_trajectory,
    read_lines,
    snapshot,
)
from demo_pipeline_tests.datasets.seen_screens import element, write_tree
from demo_pipeline_tests.exports.cudag.editing import read_records
from demo_pipeline_tests.exports.forms import build_cudag

TRAIN = DatasetSettings(train_ratio=1.0, val_ratio=0.0)


def build(root, demos, chosen, name):
    out = root / name
    return out, build_cudag(demos, out, chosen)


def test_the_instruction_alone_can_be_the_prompt(tmp_path):
    style = TRAIN.model_copy(update={"prompt_style": "instruction"})
    demo = make_trajectory(tmp_path, "demo", [CLICK, ("type", {"text": "hi"})])
    out, _ = build(tmp_path, [demo], style, dataset_directory_name([demo], style))
    human = [record.conversations[0].value for record in read_records(out / "train.jsonl")]
    assert human == ["<image>\nOpen Chrome"] * 3
    assert validate_cudag(out) == []


NAMED = {"id": "node_0", "role": "button", "name": " Search \n now "}
FIELD = {"id": "node_0", "role": "listitem", "name": "Row <image>"}
NAMELESS = {"id": "node_0", "role": "button", "name": " "}
AT = {"x": 960, "y": 540}


def test_grounding_prompts_name_the_target_and_steps_without_one_are_left_out(tmp_path):
    style = TRAIN.model_copy(update={"prompt_style": "grounding"})
    actions = [
        CLICK,
        ("click", {**AT, "button": "middle"}),
        ("click", {**AT, "button": "left", "clicks": 3}),
        ("double_click", AT),
        ("right_click", AT),
        ("scroll", {**AT, "direction": "down", "amount": 2}),
        CLICK,
        ("type", {"text": "hi"}),
        ("drag", {"start_x": 1, "start_y": 2, "end_x": 3, "end_y": 4}),
    ]
    targets = dict.fromkeys(range(len(actions)), NAMED) | {5: FIELD, 6: NAMELESS}
    demo = make_trajectory(tmp_path, "demo", actions, targets=targets)
    out, summary = build(tmp_path, [demo], style, dataset_directory_name([demo], style))
    human = [record.conversations[0].value for record in read_records(out / "train.jsonl")]
    assert human == [
        "<image>\nClick the Search now button",
        "<image>\nMiddle-click the Search now button",
        "<image>\nTriple-click the Search now button",
        "<image>\nDouble-click the Search now button",
        "<image>\nRight-click the Search now button",
        "<image>\nScroll down 2 notches on the Row [image] list item",
    ]
    assert summary.excluded_records["not_grounded"] == 4
    assert summary.details["escaped"]["prompts"] == 1
    assert validate_cudag(out) == []


DELETE = {"id": "node_2", "role": "button", "name": "Delete"}
AREA = (0, 0, 900, 900)
FIRST = (100, 100, 60, 30)
SECOND = (100, 200, 60, 30)


@pytest.mark.parametrize(
    ("others", "records"),
    [
        ([], 1),
        ([element("label", "Delete button", SECOND)], 1),
        ([element("button", "Delete", SECOND)], 0),
        ([element("button", "&delete…", SECOND)], 0),
        ([element("button", "Delete button", SECOND)], 0),
        ([element("unknown", "Delete", SECOND)], 0),
        ([element("link", "Delete", SECOND)], 1),
        ([element("button", "Delete", SECOND, states=("hidden",))], 1),
        ([element("button", "Delete", (2500, 100, 60, 30))], 1),  # on another display
    ],
)
def test_a_target_with_the_same_words_as_another_element_has_no_grounding_record(
    tmp_path, others, records
):
    style = TRAIN.model_copy(update={"prompt_style": "grounding"})
    click = ("click", {"x": 120, "y": 110, "button": "left"})
    demo = make_trajectory(tmp_path, "demo", [click], targets={0: DELETE})
    tree = element("window", "Mail", AREA, element("button", "Delete", FIRST), *others)
    write_tree(demo.path / "steps/000", tree)
    out, summary = build(tmp_path, [demo], style, dataset_directory_name([demo], style))
    assert len(list(read_records(out / "train.jsonl"))) == records
    # The second record is the end of the task, which has no target.
    assert summary.excluded_records["not_grounded"] == 2 - records
    history = build_cudag([demo], tmp_path / "history", TRAIN)
    assert history.excluded_records["not_grounded"] == 0


def test_an_unreadable_tree_gives_no_grounding_record(tmp_path):
    style = TRAIN.model_copy(update={"prompt_style": "grounding"})
    demo = make_trajectory(tmp_path, "demo", [CLICK], targets={0: DELETE})
    (demo.path / "steps/000/ui_tree.json").write_text("[]", encoding="utf-8")
    assert build_cudag([demo], tmp_path / "out", style).excluded_records["not_grounded"] == 2


def test_the_same_target_on_the_same_screenshot_is_never_in_two_splits(tmp_path):
    style = DatasetSettings(prompt_style="grounding")
    demos = [
        make_trajectory(tmp_path, f"demo_{n}", instruction=f"Task {n}", targets={0: NAMED})
        for n in range(3)
    ]
    out, summary = build(tmp_path, demos, style, dataset_directory_name(demos, style))
    assert summary.excluded_records["split_leak"] == 2
    assert [problem.code for problem in validate_cudag(out)] == ["empty_split"] * 2


def test_images_are_links_copies_or_jpeg_and_tests_stay_png(tmp_path):
    demos = [make_trajectory(tmp_path, f"demo_{n}", TABLE[:2], shade=9 * n) for n in range(3)]
    built = {}
    for kind in ("link", "copy", "jpeg"):
        chosen = DatasetSettings(image_mode=kind)
        name = f"{kind}/{dataset_directory_name(demos, chosen)}"
        built[kind], _ = build(tmp_path, demos, chosen, name)
        assert validate_cudag(built[kind]) == []
    assert snapshot(built["link"]) == snapshot(built["copy"])
    for kind, out in built.items():
        (record, *_) = read_records(out / "train.jsonl")
        metadata = record.metadata
        step = tmp_path / f"trajectories/{metadata.trajectory_id}/steps/{metadata.step_index:03d}"
        image = out / record.image
        assert (image.suffix == ".jpg") == (kind == "jpeg")
        assert image.suffix in {".jpg", ".png"}
        assert image.samefile(step / "screenshot.png") == (kind == "link")
        picture = cv2.imread(str(image))
        assert picture is not None
        assert picture.shape == (1080, 1920, 3)
    config = json.loads((built["jpeg"] / "config.json").read_text())
    assert config["images"] == {"format": "jpeg", "quality": 90}


def test_a_screenshot_that_cannot_be_decoded_gives_no_jpeg_and_no_record(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK, CLICK])
    broken = demo.path / "steps" / "000" / "screenshot.png"
    broken.write_bytes(broken.read_bytes()[:60])
    chosen = TRAIN.model_copy(update={"image_mode": "jpeg"})
    out, summary = build(tmp_path, [demo], chosen, dataset_directory_name([demo], chosen))
    assert (summary.records["train"], summary.excluded_records["missing_frame"]) == (2, 1)
    assert validate_cudag(out) == []


def test_side_files_have_tool_system_prompt_and_dataset_info(tmp_path):
    demos = [make_trajectory(tmp_path, f"demo_{n}", shade=9 * n) for n in range(3)]
    demos.append(make_trajectory(tmp_path, "apart", shade=50, application="gimp"))
    chosen = DatasetSettings(name_prefix="calendar", held_out_applications=("GIMP",))
    out, _ = build(tmp_path, demos, chosen, "out")
    config = json.loads((out / "config.json").read_text())
    assert (out / "system_prompt.txt").read_text() == config["system_prompt"] + "\n"
    (tool,) = json.loads((out / "tools.json").read_text())
    assert json.dumps(tool) in config["system_prompt"]
    info = json.loads((out / "dataset_info.json").read_text())
    assert list(info) == [f"calendar_{split}" for split in ("train", "val", "test", "held_out")]
    for entry in info.values():
        (first, *_) = read_lines(out / entry["file_name"])
        turns = first[entry["columns"]["messages"]]
        tags = entry["tags"]
        roles_and_texts = [(turn[tags["role_tag"]], turn[tags["content_tag"]]) for turn in turns]
        assert [role for role, _ in roles_and_texts] == [tags["user_tag"], tags["assistant_tag"]]
        assert roles_and_texts[0][1].startswith("<image>")
        assert (out / first[entry["columns"]["images"]]).is_file()
