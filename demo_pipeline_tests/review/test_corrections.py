"""Tests that only corrections change records, and only the records of their demonstration."""

import io
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from demo_pipeline.desktopd.validator import validate_dataset
from demo_pipeline.exports.record_stages import RECORDS_STAGE
from demo_pipeline.exports.sft import validate_sft_folder
from demo_pipeline.problems import errors
from demo_pipeline.review.review_store import Reviews, subject_of
from demo_pipeline.runs.stages import dataset_stages
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import BUILT_IN_EXPORTS, DatasetSettings
from demo_pipeline_tests.building import build_stage, run_dataset_stage
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectories, every_file
from demo_pipeline_tests.sample_workspace import open_workspace

EXPORTS: Any = BUILT_IN_EXPORTS
ACTIONS = (CLICK, ("type", {"text": "abc"}), CLICK, ("hotkey", {"keys": ["enter"]}), CLICK)
# Matches the name of the corrected demonstration.
ONE = re.compile("(?<![A-Za-z])one(?![A-Za-z])")
STEP_FORMS = ("sft", "messages", "cudag", "grounding", "transitions")


CORRECTIONS: list[tuple[str, Any]] = [
    ("instruction", {"text": "Close Chrome"}),
    ("outcome", {"success": False}),
    ("bad_step", {"step": 2}),
    ("trim", {"first": 1, "last": 3}),
    ("action", {"action": {"step_index": 2, "parameters": {"x": 7, "y": 9}}}),
]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Returns a workspace with three demonstrations of five steps, and records for every export."""
    workspace = open_workspace(tmp_path, datasets=DatasetSettings(exports=EXPORTS))
    trajectories = [
        make_trajectory(tmp_path / "made", name, ACTIONS, shade=20 * place)
        for place, name in enumerate(("one", "two", "three"))
    ]
    commit_trajectories(workspace, trajectories)
    return workspace


def decide(workspace: Workspace, kind: str, value: Any = None, name: str = "one") -> str:
    folder, version = workspace.store.open(f"trajectories/{name}")
    decision = Reviews(workspace.store).make(
        subject_of(version, name), folder, "ann", kind, value or {}
    )
    return decision.id


def rebuilt(workspace: Workspace) -> dict[str, str]:
    """Builds the records of every demonstration; returns demonstration → status of the build."""
    names = ("one", "two", "three")
    return {name: str(build_stage(workspace, RECORDS_STAGE, name).status) for name in names}


def records(workspace: Workspace, form: str, name: str = "one") -> tuple[Any, list[Any]]:
    """Returns the first line and the other lines of the records for an export such as `sft`."""
    folder = workspace.store.open(f"records/{name}")[0]
    head, *rest = map(json.loads, (folder / f"{form}.jsonl").read_text().splitlines())
    return head, rest


def built(workspace: Workspace) -> dict[str, bytes]:
    """Builds every dataset; returns `<output>/<path>` → content of each file."""
    for stage in dataset_stages():
        result = run_dataset_stage(workspace, stage)
        assert result.version is not None, (stage.name, result.problems)
    contents: dict[str, bytes] = {}
    for stage in dataset_stages():
        for output in workspace.store.outputs(stage.folder):
            folder = workspace.store.open(output)[0]
            files = every_file(folder)
            contents |= {f"{output}/{name}": data for name, data in files.items()}
    return contents


def test_decisions_without_corrections_rebuild_no_records(workspace):
    for kind, value in (
        ("approve", {}),
        ("note", {"text": "good"}),
        ("reject", {"reason": "other"}),
    ):
        decide(workspace, kind, value)
    assert set(rebuilt(workspace).values()) == {"unchanged"}
    undone = decide(workspace, "bad_step", {"step": 1})
    decide(workspace, "undo", {"decision": undone})
    assert set(rebuilt(workspace).values()) == {"unchanged"}


@pytest.mark.parametrize(("kind", "value"), CORRECTIONS)
def test_a_correction_changes_the_records_of_its_demonstration_alone(workspace, kind, value):
    before = {name: every(workspace, name) for name in ("one", "two", "three")}
    decide(workspace, kind, value)
    assert rebuilt(workspace) == {"one": "made", "two": "unchanged", "three": "unchanged"}
    after = {name: every(workspace, name) for name in ("one", "two", "three")}
    assert after["one"] != before.pop("one")
    assert {name: after[name] for name in before} == before
    assert after["one"]["trajectory.jsonl"]  # as recorded
    assert set(rebuilt(workspace).values()) == {"unchanged"}


def test_many_corrections_change_rows_of_their_demonstration_in_every_dataset_and_no_others(
    workspace,
):
    before = built(workspace)
    for kind, value in CORRECTIONS:
        if kind != "outcome":  # a failed outcome would leave the demonstration out
            decide(workspace, kind, value)
    rebuilt(workspace)
    after = built(workspace)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    changed -= {"dataset/exports.parquet"}  # contains the versions of all demonstrations
    with_rows = {name for name in changed if rows_of(name, after.get(name, b""))}
    assert {name.partition("/")[0] for name in with_rows} >= {"sft", "agentnet", "datasets"}
    for name in sorted(with_rows):
        rows = [rows_of(name, files.get(name, b"")) for files in (before, after)]
        others = [
            Counter(row for row in rows_of_file if not ONE.search(row)) for rows_of_file in rows
        ]
        assert others[0] == others[1], name
        assert rows[0] != rows[1], name


def rows_of(name: str, data: bytes) -> list[str]:
    """Returns the rows of a Parquet or JSON Lines file, and nothing for other files."""
    if not data:
        return []
    if name.endswith(".parquet"):
        return [repr(row) for row in pq.read_table(io.BytesIO(data)).to_pylist()]
    if name.endswith(".jsonl"):
        return data.decode().splitlines()
    return []


def every(workspace: Workspace, name: str) -> dict[str, bytes]:
    folder = workspace.store.open(f"records/{name}")[0]
    return {path: data for path, data in every_file(folder).items() if "/" not in path}


def test_a_bad_step_stays_in_the_history_and_gives_no_record(workspace):
    counts = {form: len(records(workspace, form)[1]) for form in STEP_FORMS}
    decide(workspace, "bad_step", {"step": 1})
    rebuilt(workspace)
    for form in ("sft", "messages", "cudag"):
        head, rest = records(workspace, form)
        assert len(rest) == counts[form] - 1, form
        assert head["excluded"]["bad_step"] == 1, form
    samples = [json.loads(record["parts"]["line"]) for record in records(workspace, "sft")[1]]
    assert [record["output"]["action"]["step_index"] for record in samples] == [0, 2, 3, 4]
    assert [record["step_index"] for record in samples[-1]["input"]["history"]] == [0, 1, 2, 3]
    document = json.loads(records(workspace, "atif")[1][0]["parts"]["document"])
    assert [step["message"] for step in document["steps"] if step["source"] == "system"]
    line = json.loads(records(workspace, "agentnet")[1][0]["parts"]["line"])
    # Only the longest run of steps without the bad step is kept. It has no final answer.
    assert len(line["traj"]) == 3


def test_trimmed_steps_are_in_no_training_data(workspace, tmp_path):
    decide(workspace, "trim", {"first": 1, "last": 3})
    rebuilt(workspace)
    samples = [json.loads(record["parts"]["line"]) for record in records(workspace, "sft")[1]]
    assert [record["output"]["action"]["step_index"] for record in samples] == [1, 2, 3]
    assert [record["step_index"] for record in samples[-1]["input"]["history"]] == [1, 2]
    chats = [json.loads(record["parts"]["line"]) for record in records(workspace, "messages")[1]]
    assert chats[-1]["task_type"] == "terminate"
    (picture,) = records(workspace, "messages")[1][-1]["files"].values()
    assert picture == "steps/004/screenshot.png"  # the screen after the last kept step
    files = built(workspace)
    out = tmp_path / "sft"
    for name, data in files.items():
        if name.startswith("sft/"):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(data)
    assert validate_sft_folder(out / "sft") == []


def test_a_corrected_outcome_changes_the_dataset_and_not_the_trajectory(workspace):
    before = built(workspace)
    decision_id = decide(workspace, "outcome", {"success": False})
    rebuilt(workspace)
    after = built(workspace)
    root = Path(workspace.settings.store)
    result = json.loads((root / "dataset/trajectories/one/result.json").read_bytes())
    assert (result["success"], bool(result["error_message"])) == (False, True)
    assert json.loads((root / "trajectories/one/result.json").read_bytes())["success"]
    index = json.loads(after["dataset/index.json"])
    assert {entry["id"]: entry["success"] for entry in index["trajectories"]}["one"] is False
    assert index["failed"] == json.loads(before["dataset/index.json"])["failed"] + 1
    assert json.loads(after["dataset/metadata.json"])["counts"]["failed"] == index["failed"]
    assert errors(validate_dataset(root / "dataset")) == []
    assert workspace.store.verify("dataset") == []
    steps = [root / kind / "one/steps" for kind in ("dataset/trajectories", "trajectories")]
    ours, theirs = (folder / "000/screenshot.png" for folder in steps)
    assert ours.samefile(theirs)
    decide(workspace, "undo", {"decision": decision_id})
    rebuilt(workspace)
    assert built(workspace) == before


def test_a_verdict_rebuilds_the_datasets_and_no_record(workspace):
    before = built(workspace)
    decide(workspace, "approve")
    stages = [stage for stage in dataset_stages() if stage.reads_trajectories]
    unchanged = {str(run_dataset_stage(workspace, stage).status) for stage in stages}
    assert unchanged == {"unchanged"}  # by default, approval has no effect on datasets
    rejected = decide(workspace, "reject", {"reason": "many_errors"})
    assert set(rebuilt(workspace).values()) == {"unchanged"}
    without = built(workspace)
    assert b"trajectories/one/" in before["sft/samples.jsonl"]
    assert b"trajectories/one/" not in without["sft/samples.jsonl"]
    assert json.loads(without["dataset/exports.json"])["trajectories"]["one"]["left_out"] == (
        "rejected"
    )
    assert workspace.store.current("sft").manifest.summary["excluded_trajectories"]["rejected"] == 1
    decide(workspace, "undo", {"decision": rejected})
    assert built(workspace) == before


def test_corrected_records_are_used_with_every_prompt_style(workspace, tmp_path):
    decide(workspace, "instruction", {"text": "Close Chrome"})
    rebuilt(workspace)
    other = DatasetSettings(exports=EXPORTS, prompt_style="instruction")
    files = built(open_workspace(tmp_path, datasets=other))
    lines = [json.loads(line) for line in files["sft/samples.jsonl"].splitlines()]
    instructions = set()
    for line in lines:
        if "/one/" in line["input"]["screenshot"]:
            instructions.add(line["input"]["instruction"])
    assert instructions == {"Close Chrome"}
