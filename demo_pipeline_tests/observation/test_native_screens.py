"""Tests screenshots in the screen's own size, and their use in grounding and message datasets."""

import json
from pathlib import Path
from typing import Any

import cv2
import pyarrow.parquet as pq
import pytest

from demo_pipeline.privacy.redaction_stage import REDACTIONS
from demo_pipeline.runs.evaluations import (
    Evaluation,
    score_file,
    write_evaluation_requests,
    write_right_answers,
)
from demo_pipeline.runs.stages import dataset_stages_by_name
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DatasetSettings, PrivacySettings, ScreenshotSettings
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.observation.test_screens import COLOURS, TINY, Screen, write
from demo_pipeline_tests.sample_workspace import open_workspace, run_all_stages
from demo_pipeline_tests.simulator.desktop import Box, Desktop, Widget
from demo_pipeline_tests.simulator.form import DESKTOP
from demo_pipeline_tests.simulator.script import Script, click, think

FORM_NAMES = {"Form", "Name", "Agree", "Load"}
FORM = tuple(widget for widget in DESKTOP.widgets if widget.name in FORM_NAMES)
SMALL = Desktop((*FORM, Widget(TINY, "button", Box(700, 266, 6, 6), "Form")))
TARGETS = ("Agree", TINY, "Name")
STORY = Script(SMALL, (click("Agree"), think(1.5), click(TINY), think(1.5), click("Name")), seed=3)
EXPORTS = ("messages", "grounding")
NATIVE = {"screenshots": ScreenshotSettings(native=True)}


def _built(root: Path, **settings: Any) -> Workspace:
    """Builds the demonstration and both datasets, which contain it as training data."""
    workspace = open_workspace(
        root,
        datasets=DatasetSettings(exports=EXPORTS, train_ratio=1, val_ratio=0),
        **settings,
    )
    run_all_stages(workspace, "demo")
    for name in EXPORTS:
        run_dataset_stage(workspace, dataset_stages_by_name()[f"{name}_dataset"])
    return workspace


def images(workspace: Workspace) -> dict[Path, bytes]:
    """Returns the bytes of each PNG file in the trajectory, by path."""
    folder = workspace.store.open("trajectories/demo")[0]
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.png")}


def chats(workspace: Workspace) -> list[tuple[Any, list[tuple[list[int], str]]]]:
    """Returns the screenshot of each chat, and the answered point with the expected widget."""
    folder = workspace.store.open("messages")[0]
    answers = []
    for line in map(json.loads, (folder / "train.jsonl").read_text("utf-8").splitlines()):
        _, user, assistant = line["messages"]
        arguments = json.loads(assistant["content"].splitlines()[1])["arguments"]
        places = [arguments["coordinate"]] if "coordinate" in arguments else []
        image = cv2.imread(str(folder / user["content"][0]["image"]))
        answers.append((image, [(at, TARGETS[line["step_index"]]) for at in places]))
    return answers


def rows(workspace: Workspace) -> dict[str, dict[str, Any]]:
    """Returns the rows of the grounding dataset, by their text."""
    folder = workspace.store.open("grounding")[0]
    return {row["text"]: row for row in pq.read_table(folder / "train.parquet").to_pylist()}


def colour_at(image: Any, x: int, y: int) -> str:
    """Returns the name of the widget whose colour is nearest to the colour of a pixel."""
    pixel = image[y, x].astype(int)
    return min(COLOURS, key=lambda name: abs(pixel - COLOURS[name]).sum())


@pytest.mark.parametrize("size", [(3840, 2160), (1080, 1920)], ids=["4k", "portrait"])
def test_datasets_use_screenshots_in_the_screens_own_size(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    """Canvas screenshots stay the same, and both datasets use the screen's own size."""
    write(tmp_path / "uploads" / "demo", Screen(*size), STORY)
    plain = _built(tmp_path)
    without = rows(plain)
    seeds = images(plain)
    workspace = _built(tmp_path, **NATIVE)
    own = {path: data for path, data in images(workspace).items() if path not in seeds}
    assert {path: data for path, data in images(workspace).items() if path in seeds} == seeds
    assert {path.name for path in own} == {"screenshot_native.png", "final_screenshot_native.png"}
    answered = chats(workspace)
    assert len(answered) == len(TARGETS) + 1  # the last chat answers with `terminate`
    for image, places in answered:
        assert image.shape[1::-1] == size
        for (x, y), name in places:
            at = [
                min(round(coordinate / 1000 * side), side - 1)
                for coordinate, side in zip((x, y), size, strict=True)
            ]
            assert colour_at(image, *at) == name
    grounded = rows(workspace)
    assert {"the Load button"} <= grounded.keys()
    for text, row in grounded.items():
        image = cv2.imread(str(workspace.store.open("grounding")[0] / row["image"]))
        assert image is not None
        assert image.shape[1::-1] == tuple(row["image_size"]) == size
        assert colour_at(image, *row["point"]) in text
    if size[0] == 3840:
        tiny = "the Tiny button"
        assert (tiny in grounded, tiny in without) == (True, False)
        left, top, right, bottom = grounded[tiny]["box"]
        assert (right - left + 1, bottom - top + 1) == (12, 12)


def test_a_model_is_asked_with_what_it_was_trained_on(tmp_path: Path) -> None:
    write(tmp_path / "uploads" / "demo", Screen(1280, 720), STORY)
    workspace = _built(tmp_path, **NATIVE)
    asked = Evaluation(split="any", presets=("strict",))
    out = tmp_path / "requests.jsonl"
    answers = tmp_path / "answers.jsonl"
    options: dict[str, Any] = {"model": "m", "system": None, "images": "path"}
    assert write_evaluation_requests(workspace, out, asked, **options) == len(TARGETS) + 1
    requests_files = sorted((tmp_path / "requests_images").iterdir())
    images_of = [cv2.imread(str(path), cv2.IMREAD_COLOR) for path in requests_files]
    assert {image.shape[1::-1] for image in images_of if image is not None} == {(1280, 720)}
    write_right_answers(workspace, answers, asked)
    assert score_file(workspace, answers, asked).row("strict")["score"] == 1.0
    write_evaluation_requests(workspace, out, asked, **options)  # replaces the first requests
    assert sorted((tmp_path / "requests_images").iterdir()) == requests_files


def test_a_screenshot_with_covered_boxes_has_no_native_version(tmp_path: Path) -> None:
    """A screenshot with covered boxes is not exported in the screen's own size."""
    write(tmp_path / "uploads" / "demo", Screen(1280, 720), STORY)
    region = {"regions": ((0, 0, 400, 400),)}
    for policy, left in ({}, True), ({"kinds": {"region": "redact"}}, False):
        workspace = _built(tmp_path, privacy=PrivacySettings(**region, **policy), **NATIVE)
        exported = workspace.store.open(f"{REDACTIONS}/demo")[0]
        if not (exported / "task.json").is_file():
            exported = workspace.store.open("trajectories/demo")[0]
        assert any(exported.rglob("*_native.png")) is left
        assert chats(workspace)
