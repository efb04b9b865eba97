import pytest

from demo_pipeline.desktopd.models import ActionType
from demo_pipeline.desktopd.trajectory_reader import read_trajectory, trajectory_folders
from demo_pipeline.files.json_files import dump_json
from demo_pipeline.problems import DemonstrationError
from demo_pipeline_tests.desktopd import good_dataset as good


@pytest.fixture
def dataset(tmp_path):
    return good.write_dataset(tmp_path)


@pytest.fixture
def folder(dataset):
    return dataset / "trajectories" / good.NAME


def test_a_trajectory_is_read_to_the_last_step(folder):
    trajectory = read_trajectory(folder)
    assert trajectory.id == good.NAME
    assert [step.action.action_type for step in trajectory.steps] == list(ActionType)
    assert [step.index for step in trajectory.steps] == list(range(8))
    assert trajectory.steps[3].screenshot.read_bytes() == good.png()
    assert trajectory.final_screenshot.is_file()


def test_steps_come_in_numeric_order_beyond_three_digits(folder):
    for number in (1000, 999, 11):
        step = folder / "steps" / str(number)
        dump_json(step / "action.json", good.actions()[7] | {"step_index": number})
    indexes = [step.index for step in read_trajectory(folder).steps]
    assert indexes == [*range(8), 11, 999, 1000]


def test_other_peoples_data_is_read(folder):
    dump_json(folder / "task.json", good.task() | {"annotator": "x"})
    (folder / "steps/000/screenshot.png").write_bytes(good.png(1280, 720))
    (folder / "steps/001/screenshot.png").write_bytes(b"JPEG?")
    (folder / "steps/002/ui_tree.json").unlink()
    assert len(read_trajectory(folder).steps) == len(ActionType)


@pytest.mark.parametrize("file", ["task.json", "result.json", "steps/004/action.json"])
@pytest.mark.parametrize("data", [None, b"", b"[]", b'{"a": 1}', b"\xff"])
def test_an_error_names_trajectory_and_file(folder, file, data):
    (folder / file).unlink()
    if data is not None:
        (folder / file).write_bytes(data)
    with pytest.raises(DemonstrationError) as caught:
        read_trajectory(folder)
    assert {(p.demonstration, p.file) for p in caught.value.problems} == {(good.NAME, file)}


def test_an_empty_folder_has_no_trajectories(tmp_path):
    assert trajectory_folders(tmp_path) == []
