"""The API's images, clips, HTML, selections of steps, and datasets for a trainer."""

import io
import sys
from dataclasses import replace
from pathlib import Path

import av
import cv2
import numpy as np
import pandas as pd
import pytest

import demo_pipeline as dp
from demo_pipeline.files.json_files import load_json
from demo_pipeline.reports.shown_steps import Shown
from demo_pipeline.review.review_store import Reviews, subject_of
from demo_pipeline.store.errors import StorageError
from demo_pipeline_tests.api.test_notebook_store import build_datasets
from demo_pipeline_tests.sample_workspace import copy_of, open_workspace

TYPED = "Ab, c!"


@pytest.fixture(scope="module")
def root(made_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a workspace with datasets and two demonstrations, one of which was rejected."""
    root = copy_of(made_root, tmp_path_factory.mktemp("pictures") / "root")
    workspace = open_workspace(root)
    build_datasets(workspace)
    folder, version = workspace.store.open("trajectories/second")
    subject = subject_of(version, "second")
    Reviews(workspace.store).make(subject, folder, "ann", "reject", {"reason": "duplicate"})
    return root


@pytest.fixture
def store(root: Path, monkeypatch: pytest.MonkeyPatch) -> dp.NotebookStore:
    monkeypatch.setenv("DEMO_PIPELINE_UPLOADS", str(root / "uploads"))
    return dp.load_store(root / "store")


def pixels(image: Shown) -> np.ndarray:
    picture = cv2.imdecode(np.frombuffer(image.data, np.uint8), cv2.IMREAD_COLOR_RGB)
    assert picture is not None
    return picture


class TestSteps:
    def test_the_steps_have_the_content_of_every_action(self, store, root):
        rows = store.steps()
        assert len(rows) == 7
        for row in rows.itertuples():
            place = root / "store" / str(row.screenshot)
            assert place.is_file()
            action = load_json(place.with_name("action.json"))
            for name in ("x", "y", "text", "direction", "amount"):
                written = action["parameters"].get(name)
                value = getattr(row, name)
                assert written is None if pd.isna(value) else written == value, name
            target = action["target_element"] or {"role": None, "name": None}
            assert not target["role"] or (row.target_role, row.target_name) == (
                target["role"],
                target["name"],
            )

    def test_clicks_in_an_application_are_selected_by_a_condition(self, store):
        [application] = store.steps()["application"].unique()
        rows = store.sql(
            "SELECT x, y, target_name, instruction, outcome, split FROM steps "  # noqa: S608 - no foreign text
            f"WHERE application = '{application}' AND action_type = 'click' "
            "ORDER BY trajectory_id, step_index"
        )
        assert list(rows["target_name"]) == ["Agree", "Name", "b", "Agree"]
        assert list(rows["instruction"].unique()) == [
            "Please do the first task.",
            "Please do the second task.",
        ]
        assert set(rows["outcome"]) == {"done"}
        exports = store.sql("SELECT DISTINCT trajectory_id, split FROM exports")
        assert set(rows["split"]) <= set(exports["split"])
        assert not rows["split"].isna().any()

    def test_steps_are_filtered_by_triage_and_review(self, store):
        steps = store.steps(triage=True)
        assert len(steps) == len(store.steps())
        assert dict(zip(steps["trajectory_id"], steps["review"], strict=True)) == {
            "first": "open",
            "second": "rejected",
        }
        doubtful = steps.query("no_effect and review != 'rejected'")
        counted = store.triage().set_index("trajectory_id")
        assert len(doubtful) == counted["no_effect_steps"]["first"]
        assert counted["review"]["second"] == "rejected"
        assert steps["doubt"].sum() > 0
        added = set(steps.columns) - set(store.steps().columns) - {"review"}
        assert {"doubt", "no_effect"} < added <= set(store.columns("triage_steps")["column"])

    def test_the_descriptions_of_columns_list_the_allowed_values(self, store):
        values = store.columns("steps").set_index("column")["values"]
        assert values["outcome"] == "done, failed, aborted, unknown"
        assert values["x"].startswith("≥ 0; with action_type click")
        assert values["reason"] == ""


class TestPictures:
    def test_a_step_is_drawn_with_its_action(self, store):
        step = store.trajectory("first").steps[0]
        drawn = pixels(step.picture(width=960))
        plain = cv2.resize(step.screenshot, (960, 540), interpolation=cv2.INTER_AREA)
        x = step.action.parameters.x // 2
        y = step.action.parameters.y // 2
        changed = np.abs(drawn.astype(int) - plain).max(axis=2) > 60
        assert drawn.shape == (540, 960, 3)
        assert changed[y - 25 : y + 25, x - 25 : x + 25].any()
        assert changed.mean() < 0.05

    def test_html_has_screenshots_and_no_typed_text(self, store):
        trajectory = store.trajectory("first")
        html = trajectory._repr_html_()
        html += "".join(step._repr_html_() for step in trajectory.steps)
        assert html.count("data:image/jpeg;base64,") == 1 + len(trajectory.steps)
        assert "Please do the first task." in html
        assert TYPED not in html + repr(trajectory.steps)

    def test_html_is_escaped(self, store):
        loaded = store.trajectory("first")
        task = loaded.task.model_copy(update={"instruction": "<script>alert(1)</script>"})
        trajectory = replace(loaded, task=task)
        assert "<script>" not in trajectory._repr_html_()
        assert "&lt;script&gt;" in trajectory._repr_html_()

    def test_a_selection_becomes_a_sheet(self, store):
        steps = store.steps().query("action_type == 'click'")
        sheet = store.contact_sheet(steps, columns=2, width=240)
        assert sheet._repr_jpeg_() == sheet.data
        assert pixels(sheet).shape == (2 * (38 + 135), 480, 3)
        fewer = store.contact_sheet(steps, columns=2, width=240, most=2)
        assert pixels(fewer).shape == (40 + 38 + 135, 480, 3)  # with the title `2 of 4 steps`
        for rows in (steps.iloc[:0], store.triage()):
            with pytest.raises(ValueError, match="needs rows of steps"):
                store.contact_sheet(rows)
        with pytest.raises(StorageError, match="first has no step 99; it has 0 to 3"):
            store.contact_sheet(steps.assign(step_index=99))

    def test_an_image_can_be_saved(self, store, tmp_path):
        store.trajectory("first").steps[0].picture(320).save(tmp_path / "step.jpg")
        saved = cv2.imread(str(tmp_path / "step.jpg"))
        assert saved is not None
        assert saved.shape == (180, 320, 3)


class TestClip:
    def test_a_clip_is_the_video_around_a_step(self, store):
        trajectory = store.trajectory("first")
        row = trajectory.steps[1].provenance
        clip = trajectory.clip(1, before_s=0.5, after_s=0.5)
        assert "<video" in str(clip._repr_html_())
        with av.open(io.BytesIO(clip.data)) as film:
            frames = [(frame.time, frame) for frame in film.decode(video=0)]
        acted = (row["lead_ms"] + row["end_ms"] - row["press_ms"]) / 1000
        assert frames[-1][0] == pytest.approx(1 + acted, abs=0.3)
        _, nearest = min(frames, key=lambda item: abs(item[0] - 0.5))
        shown_pixels = nearest.to_ndarray(format="gray")
        with av.open(str(trajectory._find_video())) as film:
            same = next(f for f in film.decode(video=0) if f.time >= row["pts"] - 1e-6)
        assert np.abs(shown_pixels.astype(int) - same.to_ndarray(format="gray")).mean() < 4

    def test_a_missing_video_is_reported(self, store, tmp_path, monkeypatch):
        monkeypatch.setenv("DEMO_PIPELINE_UPLOADS", str(tmp_path))
        with pytest.raises(StorageError, match="first: the video is neither in the store"):
            store.trajectory("first").clip(0)

    def test_a_missing_step_is_named(self, store):
        with pytest.raises(StorageError, match="first has no step 4; it has 0 to 3"):
            store.trajectory("first").clip(4)

    def test_the_store_of_the_settings_is_not_opened(self, store, monkeypatch):
        monkeypatch.setenv("DEMO_PIPELINE_STORE", "ftp://elsewhere/store")
        assert len(store.trajectory("first").clip(1).data) > 0


class TestDataset:
    def test_its_images_are_the_screenshots(self, store):
        for name, column in (("sft", "screenshot"), ("messages", "images")):
            rows = store.dataset(name, "train")
            assert len(rows) > 0
            first = rows[0]
            image = first[column] if name == "sft" else first[column][0]
            step = store.trajectory(first["trajectory_id"]).steps[first["step_index"]]
            assert np.array_equal(np.asarray(image.convert("RGB")), step.screenshot)
        assert Path(store.dataset("sft", "train")[0]["ui_tree"]).is_file()

    def test_a_missing_dataset_or_split_is_named(self, store):
        with pytest.raises(StorageError, match="no dataset 'sfd'; there are sft, messages"):
            store.dataset("sfd", "train")
        with pytest.raises(StorageError, match=r"sft has no split 'dev'; it has .*train"):
            store.dataset("sft", "dev")
        with pytest.raises(StorageError, match="no split 'samples'; it has train"):
            store.dataset("sft", "samples")  # this file contains the test split, too
        with pytest.raises(StorageError, match="transitions"):
            store.dataset("transitions", "train")

    def test_without_the_library_the_extra_is_named(self, store, monkeypatch):
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(ModuleNotFoundError, match=r"demo_pipeline\[notebook\]"):
            store.dataset("sft", "train")
