"""Tests that tasks keep their split, and that repeated uploads are reported and left out."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.datasets.splits import plan_splits
from demo_pipeline.files.json_files import dump_json
from demo_pipeline.osworld.task_text import slug
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE
from demo_pipeline.review.review_store import forget_demonstration
from demo_pipeline.runs.committed_trajectories import committed_trajectories
from demo_pipeline.runs.stages import dataset_stages_by_name
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DatasetSettings, Settings
from demo_pipeline.store.split_memory import read_split_memory
from demo_pipeline.store.versions import Recipe
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectory
from demo_pipeline_tests.uploads import made_manifest

SFT = dataset_stages_by_name()["sft_samples"]


def demonstration(root: Path, name: str, instruction: str, title: str) -> DatasetTrajectory:
    """Returns a demonstration whose task group follows from the title."""
    task = slug(f"chrome {title}")
    return make_trajectory(root / "made", name, [CLICK], instruction=instruction, group=task)


def opened(root: Path, **datasets: bool) -> Workspace:
    chosen = DatasetSettings(**datasets)
    place = Settings(uploads=f"{root}/uploads", store=f"{root}/store", datasets=chosen)
    return Workspace.open(place)


def built(workspace: Workspace) -> dict[str, str]:
    """Builds the SFT samples; returns demonstration → its split in the samples."""
    result = run_dataset_stage(workspace, SFT)
    assert result.version is not None, result.checks
    splits: dict[str, str] = {}
    for split in ("train", "val", "test"):
        lines = (workspace.store.open("sft")[0] / f"{split}.jsonl").read_text().splitlines()
        splits |= {json.loads(line)["input"]["screenshot"].split("/")[1]: split for line in lines}
    return splits


def test_the_same_words_under_other_titles_forms_and_platforms_are_one_task(tmp_path):
    workspace = opened(tmp_path)
    same = ["Öffne die Datei.", "ÖFFNE  DIE DATEI", "O\u0308ffne die Datei", "öffne\ndie datei!"]
    demos = [demonstration(tmp_path, f"same{n}", text, f"Title {n}") for n, text in enumerate(same)]
    demos += [demonstration(tmp_path, f"other{n}", f"Other {n}", f"Other {n}") for n in range(12)]
    for demo in demos:
        commit_trajectory(workspace, demo)
    splits = built(workspace)
    assert len({splits[f"same{n}"] for n in range(4)}) == 1
    assert len(set(splits.values())) == 3


@pytest.mark.parametrize(("title", "other"), [("Éditer", "E\u0301diter"), ("ÜBEN", "üben")])
def test_a_title_in_another_form_or_case_is_the_same_task(title, other):
    assert slug(title) == slug(other)


def test_a_new_demonstration_moves_only_the_task_that_it_joins(tmp_path):
    workspace = opened(tmp_path)
    for number in range(9):
        title = f"Title {number}"
        commit_trajectory(
            workspace, demonstration(tmp_path, f"demo{number}", f"Do {number}.", title)
        )
    before = built(workspace)
    assert set(before.values()) == {"train", "val", "test"}
    first = {split: key for key, split in before.items()}
    joined = sorted((first["val"], first["test"]))
    older, younger = (number[-1] for number in joined)
    for number in range(9, 15):  # ids that sort before and after the existing ones
        for name in (f"a{number}", f"z{number}"):
            commit_trajectory(
                workspace, demonstration(tmp_path, name, f"Do {number}", f"Title {number}")
            )
    after = built(workspace)
    assert {key: after[key] for key in before} == before
    bridge = demonstration(tmp_path, "bridge", f"do {older}", f"Title {younger}")
    commit_trajectory(workspace, bridge)
    moved = built(workspace)
    wanted = after | {joined[1]: after[joined[0]], "bridge": after[joined[0]]}
    assert moved == wanted
    [sentence] = committed_trajectories(workspace).notices
    assert sentence.startswith(f"{joined[1]} moved from {after[joined[1]]} to {after[joined[0]]}")
    assert run_dataset_stage(workspace, SFT).status == "unchanged"
    forget_demonstration(workspace.store, "bridge", ["trajectories", "records", "annotated"])
    assert "bridge" not in json.dumps(list(read_split_memory(workspace.store).demonstrations))
    assert built(workspace) == {key: split for key, split in moved.items() if key != "bridge"}


def write_manifest(workspace: Workspace, name: str, film: str, log: str) -> None:
    """Commits a recording whose manifest has hashes made from the texts `film` and `log`."""
    manifest = made_manifest(name, [part.encode().hex() for part in (log, name, film)])
    with workspace.store.stage(RAW_RECORDINGS_STAGE.output(name)) as staging:
        dump_json(staging.path / "manifest.json", manifest)
        workspace.store.commit(staging, Recipe("raw_recordings", "made", "made", {}), {})


def test_the_later_of_two_equal_uploads_is_reported_and_left_out(tmp_path):
    workspace = opened(tmp_path)
    for name, film, log in (("b_first", "f", "l"), ("c_other", "g", "m")):
        write_manifest(workspace, name, film, log)
        commit_trajectory(workspace, demonstration(tmp_path, name, f"Do {name}", f"Title {name}"))
    assert sorted(built(workspace)) == ["b_first", "c_other"]
    # The id sorts first, but the log already belongs to an older demonstration.
    write_manifest(workspace, "a_copy", "another film", "l")
    commit_trajectory(workspace, demonstration(tmp_path, "a_copy", "Do a copy", "Title of a copy"))
    assert sorted(built(workspace)) == ["b_first", "c_other"]
    sentence = "a_copy has the same video or log as b_first"
    assert committed_trajectories(workspace).notices[0].startswith(sentence)


class _TrajectoryCache:
    """A cache of trajectories with a single step, shared by all Hypothesis examples."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.trajectories = dict[tuple[str, str, str], DatasetTrajectory]()

    def get(self, name: str, instruction: str, title: str) -> DatasetTrajectory:
        key = (name, instruction, title)
        if key not in self.trajectories:
            root = self.root / str(len(self.trajectories))
            self.trajectories[key] = demonstration(root, name, instruction, title)
        return self.trajectories[key]


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> _TrajectoryCache:
    return _TrajectoryCache(tmp_path_factory.mktemp("unions"))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_any_union_of_titles_and_words_is_in_one_split(demos, pairs):
    sources = [demos.get(f"d{n:02}", f"Say {w}", f"T {t}") for n, (w, t) in enumerate(pairs)]
    _, plan = plan_splits(sources, DatasetSettings())
    for source, (words, title) in zip(sources, pairs, strict=True):
        for other, (others, another) in zip(sources, pairs, strict=True):
            if words == others or title == another:
                assert plan.splits[source.id] is plan.splits[other.id]
