"""Twenty corrections on the review page and a rebuild: these differ, and nothing else does."""

import io
import json
import shutil
from collections import Counter
from collections.abc import Mapping
from typing import Any, get_args
from uuid import uuid4

import pyarrow.parquet as pq

from demo_pipeline.runs.datasets import run_dataset_stage
from demo_pipeline.runs.stage_runs import build_stage
from demo_pipeline.runs.stages import DATASET_STAGES, STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DatasetSettings, ExportName
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectories, every_file
from demo_pipeline_tests.golden.outputs import REAL_RECORDINGS
from demo_pipeline_tests.review.serving import Served, served
from demo_pipeline_tests.sample_workspace import open_workspace

TRIMMED, REWORDED = REAL_RECORDINGS
DONE, KEPT = "done", "kept"
BAD = {TRIMMED: (2, 4, 5, 7), REWORDED: (0, 3, 6, 9, 12)}
# What counts or lists the rest, and has no row of its own.
AFTER_TRAJECTORIES = [
    stage for stage in STAGES if stage.name in ("redactions", "annotations", "records")
]
SUMMARIES = (
    *("README.md", "index.json", "metadata.json", "exports.json", "exports.parquet", "config.json"),
    *("statistics.json", "files.sha256", "splits.json"),
)


def corrected_action(action: Mapping[str, Any]) -> dict[str, Any] | None:
    """Another text, or another place without a target; None for what is not corrected."""
    parameters = action["parameters"]
    if action["action_type"] == "type":
        changed = {"text": f"{parameters['text']}!"}
    elif action["action_type"] in {"click", "right_click"}:
        changed = {"x": parameters["x"] + 1}
    else:
        return None
    target = {"target_element": None} if "x" in changed else {}
    return {"step_index": action["step_index"], "parameters": {**parameters, **changed}, **target}


def decide_all(running: Served) -> None:
    """Twenty decisions about three demonstrations."""
    sent: list[tuple[str, str, Any]] = [(DONE, "outcome", {"success": False})]
    for name in REAL_RECORDINGS:
        sent += [(name, "bad_step", {"step": step}) for step in BAD[name]]
        sent.append((name, "instruction", {"text": f"Words of {name}"}))
        steps = running.ask(f"api/demonstrations/{name}").json["steps"]
        actions = [found for step in steps if (found := corrected_action(step["action"]))]
        sent += [(name, "action", {"action": action}) for action in actions]
        if name == TRIMMED:
            last = len(steps) - 2
            sent.append((name, "trim", {"first": 1, "last": last}))
    most = [one for one in sent if one[1] != "action"]
    sent = most + [one for one in sent if one[1] == "action"][-(20 - len(most)) :]
    assert len(sent) == 20
    assert len({kind for _, kind, _ in sent}) == 5
    for name, kind, value in sent:
        answer = running.decide(name, kind, value, uuid4().hex)
        assert answer.status == 201, answer.body


def build(workspace: Workspace) -> dict[str, str]:
    """Build everything; output → status."""
    names = (*REAL_RECORDINGS, DONE, KEPT)
    found = {}
    for name in names:
        for stage in STAGES if name in REAL_RECORDINGS else AFTER_TRAJECTORIES:
            found[f"{stage.name}/{name}"] = str(build_stage(workspace, stage, name).status)
    for dataset in DATASET_STAGES:
        result = run_dataset_stage(workspace, dataset)
        assert result.version is not None, (dataset.name, result.problems)
        assert all(check.passed for check in result.checks if check.blocking)
        found[dataset.name] = str(result.status)
    return found


def everything(workspace: Workspace) -> dict[str, bytes]:
    """Every file of every current output."""
    found: dict[str, bytes] = {}
    for output in workspace.store.outputs():
        folder = workspace.store.open(output)[0]
        found |= {f"{output}/{name}": data for name, data in every_file(folder).items()}
    return found


def rows_of(name: str, data: bytes) -> list[str]:
    """The rows of a table or of lines; of another file nothing."""
    if name.endswith(".parquet"):
        return [repr(row) for row in pq.read_table(io.BytesIO(data)).to_pylist()] if data else []
    if name.endswith(".json"):
        value = json.loads(data) if data else None
        return [repr(row) for row in value] if isinstance(value, list) else []
    return data.decode().splitlines() if name.endswith(".jsonl") else []


def recorded_steps(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """The index's steps without their split: which datasets they are in is decided."""
    table = pq.read_table(io.BytesIO(files["dataset/steps.parquet"]))
    rows: list[dict[str, Any]] = table.drop_columns(["split"]).to_pylist()
    return rows


def samples(files: Mapping[str, bytes], name: str) -> dict[int, Any]:
    lines = map(json.loads, files["sft/samples.jsonl"].splitlines())
    of_it = (one for one in lines if f"/{name}/" in one["input"]["screenshot"])
    return {one["output"]["action"]["step_index"]: one for one in of_it}


def expected(before: Any, name: str, actions: Mapping[int, Any], first: int) -> Any:
    """A sample after the decisions about its demonstration."""
    given, answer = before["input"], before["output"]
    history = [one for one in given["history"] if one.get("step_index", first) >= first]
    history = [actions.get(one.get("step_index"), one) for one in history]
    action = actions.get(answer["action"]["step_index"], answer["action"])
    made = {
        **before,
        "input": {**given, "instruction": f"Words of {name}", "history": history},
        "output": {"action": action, "reasoning": action["reasoning"]},
    }
    return made | ({"first_step": first} if first else {})


def test_twenty_corrections_and_a_rebuild_change_these_and_nothing_else(real_root, tmp_path):
    shutil.copytree(real_root, tmp_path, symlinks=True, dirs_exist_ok=True)
    exports: Any = get_args(ExportName)
    workspace = open_workspace(tmp_path, datasets=DatasetSettings(exports=exports))
    small = [
        make_trajectory(tmp_path / "made", name, [CLICK] * 4, shade=place)
        for place, name in ((0, DONE), (60, KEPT))
    ]
    commit_trajectories(workspace, small)
    build(workspace)
    before = everything(workspace)
    with served(workspace) as running:
        decide_all(running)
    statuses = build(workspace)
    after = everything(workspace)

    corrected = (*REAL_RECORDINGS, DONE)
    made = {name for name, status in statuses.items() if status == "made"}
    again = {f"{stage}/{name}" for stage in ("annotations", "records") for name in corrected}
    demonstrations = {name for name in made if "/" in name}
    assert {name for name in demonstrations if not name.startswith("redactions/")} == again
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    held = [json.loads(after[f"records/{name}/corrections.json"]) for name in corrected]
    assert sum(len(one["decisions"]) for one in held) == 20

    # What was recorded stays but for the verdict on success, and all that nobody corrected.
    stages = tuple(f"{stage.folder}/" for stage in STAGES if f"{stage.name}/{DONE}" not in again)
    tables = ("dataset/trajectories", "dataset/index", "dataset/hidden")
    verdict = {f"dataset/trajectories/{DONE}/result.json", "dataset/trajectories.parquet"}
    recorded = {name for name in changed if name.startswith((*stages, *tables))}
    assert recorded == verdict | {"dataset/index.json"}
    assert recorded_steps(before) == recorded_steps(after)
    assert [name for name in changed if f"/{KEPT}/" in name] == []
    unexplained = []
    for name in sorted(changed):
        if name.rpartition("/")[2] in SUMMARIES or "/plots/" in name or told(name, corrected):
            continue
        if name.endswith((".png", ".jpg")):  # named after what it shows
            assert name not in before or name not in after
            continue
        rows = [rows_of(name, files.get(name, b"")) for files in (before, after)]
        others = [Counter(row for row in found if not told(row, corrected)) for found in rows]
        assert others[0] == others[1], name
        if rows[0] == rows[1]:
            unexplained.append(name)
    assert unexplained == []

    # In the samples exactly the decisions differ.
    judged = {one.id: one for one in workspace.reviews.all()}
    assert len(judged) == 20
    for name in REAL_RECORDINGS:
        actions: dict[int, Any] = {}
        for one in judged.values():
            if one.demonstration == name and one.kind == "action":
                action = one.value.model_dump(mode="json")["action"]
                actions[action["step_index"]] = action
        first = 1 if name == TRIMMED else 0
        was, now = samples(before, name), samples(after, name)
        gone = {*BAD[name]} | ({0, max(was)} if name == TRIMMED else set())
        assert now == {
            step: expected(sample, name, actions, first)
            for step, sample in was.items()
            if step not in gone
        }
    assert samples(before, KEPT) == samples(after, KEPT)
    assert (bool(samples(before, DONE)), samples(after, DONE)) == (True, {})


def told(text: str, names: tuple[str, ...]) -> bool:
    """Whether a row or a path is of one of these demonstrations."""
    return any(name in text for name in names)
