"""What `demo-pipeline inspect` says beside the timeline: steps, datasets, or why there is nothing.

Belongs here: text for people about one demonstration, without typed characters.
"""

import difflib
from collections.abc import Iterator
from pathlib import Path

from demo_pipeline.datasets.index import EXPORTS_SCHEMA, EXPORTS_TABLE
from demo_pipeline.desktopd.trajectory_reader import read_trajectory
from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.files.parquet import read_rows
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.files.shown_text import counted
from demo_pipeline.runs.quarantine import read_quarantine
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.store.store import Store
from demo_pipeline.trajectories.provenance import read_provenance

_COLUMNS = ("step_index", "action_index", "leak", "unavoidable")


def step_lines(trajectory: Path, shown: str) -> Iterator[str]:
    """Yield the steps of a trajectory: number, action, picture, leak and target.

    The name of a target that may have been typed is not shown. `shown`: the folder for people.
    """
    steps = read_trajectory(trajectory).steps
    rows = read_provenance(trajectory / "provenance.parquet", _COLUMNS)
    known = {row["step_index"]: row for row in rows}
    yield f"Steps: {len(steps)}, in {shown}"
    if steps:
        yield f"{'step':>5}{'#':>5}  {'picture':<25} {'leak':<12} {'action':<13} target"
    for step in steps:
        row = known[step.index]
        element = step.action.target_element  # its name may be what somebody typed
        target = f"{element.role} {element.id}" if element else ""
        leak = "unavoidable" if row["unavoidable"] else "leak" if row["leak"] else "no"
        yield (
            f"{step.index:>5}{row['action_index']:>5}  "
            f"{step.screenshot.relative_to(trajectory)!s:<25} {leak:<12} "
            f"{step.action.action_type:<13} {target}"
        ).rstrip()


def dataset_lines(store: Store, demonstration: str) -> Iterator[str]:
    """Yield what each dataset has of a demonstration, or why it has nothing."""
    if store.current(INDEX_STAGE.folder) is None:
        yield "Datasets: none was built yet; `demo-pipeline run` builds them"
        return
    folder = store.open(INDEX_STAGE.folder, EXPORTS_TABLE)[0]
    rows = read_rows(folder / EXPORTS_TABLE, EXPORTS_SCHEMA)
    own = [row for row in rows if row["trajectory_id"] == demonstration]
    yield "Datasets:" if own else "Datasets: built without it; `demo-pipeline run` takes it in"
    for row in own:
        state = f"is {row['status']}"
        if row["status"] == "built":
            state = counted(row["records"], "records")
            state += f" in {row['split']}" if row["split"] else ""
            if row["left_out"] and not row["records"]:
                reason, setting = row["left_out"], f"include_{row['left_out']}"
                known = setting in DatasetSettings.model_fields
                state = f"left out: {reason.replace('_', ' ')}"
                state += f" (the setting datasets.{setting} takes it in)" if known else ""
        if row["status"] != "disabled":
            yield f"  {row['export']:<14}{state}"


def quarantine_lines(store: Store, demonstration: str) -> Iterator[str]:
    """Yield why a demonstration is quarantined, and what to do; nothing when it is not."""
    record = read_quarantine(store, demonstration)
    if record is not None:
        yield f"{demonstration} is quarantined in {record.stage}:"
        yield from (f"  {problem}" for problem in record.known_problems())
        yield f"Correct the upload; then `demo-pipeline run`, or `run {demonstration}` as it is"


def absence(workspace: Workspace, demonstration: str) -> str:
    """Why there is nothing of a demonstration to show, and what to do."""
    upload = workspace.uploads.find(demonstration)
    if upload is None:
        known = [one.id for one in workspace.uploads.list_demonstrations()]
        near = difflib.get_close_matches(demonstration, known, 1)
        hint = f"; the nearest id is {near[0]}" if near else ""
        return (
            f"no recording {demonstration} in {workspace.uploads.url}{hint}; "
            f"copy its folder there, then `demo-pipeline run {demonstration}`"
        )
    missing = [name for name in RECORDING_FILES if name not in upload.files]
    if missing:
        return f"{demonstration} lacks {', '.join(missing)}: copy it into its folder, then run it"
    return f"{demonstration} was not processed yet: `demo-pipeline run {demonstration}` does it"
