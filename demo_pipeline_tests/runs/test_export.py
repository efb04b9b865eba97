import os
import shutil
import signal

import pytest

from demo_pipeline.privacy.redaction_stage import hash_of_settings
from demo_pipeline.runs.export import export_datasets, folder_draft
from demo_pipeline.settings import PrivacySettings
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.store import open_store
from demo_pipeline_tests.store.making_outputs import put, recipe

CUDAG = "datasets/demonstrations--demo-pipeline--20250101_000000"


@pytest.fixture
def store(tmp_path):
    store = open_store(str(tmp_path / "store"))
    trajectory = put(store, "trajectories/d1", {"task.json": "{}", "steps/000/action.json": "{}"})
    put(store, "dataset", {"index.json": "[]"}, {"trajectories/d1": trajectory})
    put(store, "sft", {"samples.jsonl": ""})
    put(store, "contact_sheets/d1", {"sheet.jpg": "a picture"})
    put(store, CUDAG, {"config.json": "{}"})
    put(store, "osworld/tasks", {"catalog.parquet": ""})
    put(store, "osworld/quests", {"test_all.json": "{}"})
    return store


def test_an_export_hard_links_equal_images_and_copies_other_files(store, tmp_path):
    picture = "a picture" * 1000
    steps = "trajectories/d1/steps/000"
    files = {f"{steps}/screenshot.png": picture, f"{steps}/action.json": "{}"}
    put(store, "sft", {**files, "samples.jsonl": "{}"})
    put(store, "messages", files)
    dest = tmp_path / "out"
    sizes = export_datasets(store, dest)
    shots = [dest / name / steps / "screenshot.png" for name in ("sft", "messages")]
    assert {shot.read_text() for shot in shots} == {picture}
    assert len({shot.stat().st_ino for shot in shots}) == 1
    actions = [dest / name / steps / "action.json" for name in ("sft", "messages")]
    assert len({action.stat().st_ino for action in actions}) == 2
    assert {name: sizes[name] for name in ("sft", "messages")} == {"sft": 9004, "messages": 2}
    (tmp_path / "store/sft" / steps / "screenshot.png").write_text("changed")
    assert shots[0].read_text() == picture


def test_a_disabled_export_is_not_copied(store, tmp_path):
    names = export_datasets(store, tmp_path / "out", disabled=["sft", "datasets"])
    assert set(names) == {"dataset", "osworld/quests", "contact_sheets/d1"}
    assert not (tmp_path / "out/sft").exists()


def test_without_an_index_no_contact_sheet_is_copied(store, tmp_path):
    store.remove("dataset")
    assert "contact_sheets/d1" not in export_datasets(store, tmp_path / "out")


def put_sheets(store, redactions, privacy):
    """Commits contact sheets of a redacted trajectory, and datasets that contain the trajectory."""
    with store.stage("contact_sheets/d1") as staging:
        (staging.path / "sheet.jpg").write_text("a picture")
        sheets = recipe(redactions=redactions.content)
        store.commit(staging, sheets, {"tiles": 1})
    for name in ("dataset", "sft"):
        with store.stage(name) as staging:
            (staging.path / "trajectories/d1").mkdir(parents=True)
            (staging.path / "trajectories/d1/task.json").write_text("{}")
            summary = {"left_out": {}, "looked_for": hash_of_settings(privacy)}
            store.commit(staging, recipe(), summary)


def put_redactions(store, privacy, files):
    """Commits redactions that were made with these privacy settings."""
    with store.stage("redactions/d1") as staging:
        for name, text in files.items():
            (staging.path / name).write_text(text)
        return store.commit(staging, recipe(), {"privacy": hash_of_settings(privacy)})


def test_contact_sheets_from_before_a_redaction_are_not_exported(store, tmp_path):
    before = PrivacySettings(policy="redact")
    privacy = PrivacySettings(policy="redact", words=("Falcon",))
    put_sheets(store, put_redactions(store, before, {"redactions.json": "{}"}), privacy)
    with pytest.raises(StorageError, match="contact_sheets/d1 was built with other settings"):
        export_datasets(store, tmp_path / "out", privacy=privacy)
    redacted = put_redactions(store, privacy, {"redactions.json": "{1}"})
    with pytest.raises(StorageError, match="contact_sheets/d1 was built with other settings"):
        export_datasets(store, tmp_path / "out", privacy=privacy)
    assert not (tmp_path / "out").exists()
    put_sheets(store, redacted, privacy)
    assert "contact_sheets/d1" in export_datasets(store, tmp_path / "out", privacy=privacy)


def test_a_damaged_dataset_is_not_exported_at_all(store, tmp_path):
    (tmp_path / "store/trajectories/d1/task.json").write_text("[]")
    with pytest.raises(StorageError, match=r"trajectories/d1/task\.json"):
        export_datasets(store, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_a_failure_halfway_leaves_nothing(store, tmp_path, monkeypatch):
    def full(_source, _target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(StorageError, match="nothing was exported"):
        export_datasets(store, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_the_draft_of_a_killed_export_is_removed_but_not_of_a_running_one(store, tmp_path):
    if (child := os.fork()) == 0:
        with folder_draft(tmp_path / "out") as draft:
            (draft / "half.json").write_text("{")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    [abandoned] = tmp_path.glob(".out.*")
    with folder_draft(tmp_path / "out") as draft:
        assert not abandoned.exists()
        (draft / "a.json").write_text("{}")
        export_datasets(store, tmp_path / "out")
        assert (draft / "a.json").exists()
        shutil.rmtree(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.json"]
    assert list(tmp_path.glob(".out.*")) == []
