"""A sensor killed between any two steps loses no upload and doubles no run."""

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from demo_pipeline.runs.discovery_table import UploadState
from demo_pipeline.runs.results import Status
from demo_pipeline_tests.discovery.dying_ticks import Fuse, Killed
from demo_pipeline_tests.discovery.scene import Scene

Story = Callable[[Scene], None]


def first_upload(scene: Scene) -> None:
    scene.upload("a")
    scene.upload("b")
    scene.tick()


def unconfirmed(scene: Scene) -> None:
    first_upload(scene)
    scene.launch(scene.tick(61))


def second_upload(scene: Scene) -> None:
    first_upload(scene)
    scene.go_on(150)
    scene.upload("a", "2", ("meta.json",))
    scene.tick()


def a_rerun_request(scene: Scene) -> None:
    first_upload(scene)
    scene.go_on(150)
    scene.request_rerun("a", "retry")


def a_lost_run(scene: Scene) -> None:
    first_upload(scene)
    scene.go_on(150)
    scene.runs.by_id["a"][-1].end(Status.LOST)


def run(story: Story, path: Path, step: int) -> tuple[list[str], bool]:
    """Runs by id after a death at this step, and whether there was one."""
    scene = Scene(path)
    story(scene)
    scene.before = fuse = Fuse(step)
    with suppress(Killed):
        for request in scene.tick(61).requests:
            fuse("launch")
            scene.runs.launch(request)
            fuse("launched")
    scene.before = lambda _: None
    scene.go_on(180)
    assert {scene.state(name) for name in "ab"} == {UploadState.ACCEPTED}
    runs = [run.id for each in scene.runs.by_id.values() for run in each]
    return sorted(runs), fuse.left < 0


def check(story: Story, folder: Path, expected: list[str], steps: int) -> None:
    for step in count():
        runs, died = run(story, folder / f"{step}.sqlite", step)
        assert runs == expected, step
        if not died:
            assert step >= steps
            return


def test_while_it_requests_the_first_runs(tmp_path):
    check(first_upload, tmp_path, ["a", "b"], steps=10)


def test_while_it_confirms_what_was_launched(tmp_path):
    check(unconfirmed, tmp_path, ["a", "b"], steps=7)


def test_while_it_requests_a_new_version(tmp_path):
    check(second_upload, tmp_path, ["a", "a", "b"], steps=9)


def test_while_it_grants_a_rerun_request(tmp_path):
    check(a_rerun_request, tmp_path, ["a", "a", "b"], steps=8)


@pytest.mark.no_cover  # other tests run the same lines
def test_while_it_retries_a_lost_run(tmp_path):
    check(a_lost_run, tmp_path, ["a", "a", "b"], steps=10)
