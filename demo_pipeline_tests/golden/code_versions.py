"""Checks that the code version of a stage is raised when changed code writes other outputs.

`code_versions.json` contains, for each stage, its code version and hashes of its code and of its
golden outputs. A stage whose golden outputs change together with its code needs a higher version.
Otherwise, stores would keep the outputs of the old code.
"""

import ast
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from demo_pipeline.annotations.annotation_store import ANNOTATIONS
from demo_pipeline.runs.stages import STAGES, dataset_stages
from demo_pipeline.runs.task_catalog import OSWORLD_TASKS
from demo_pipeline.stage import RECORDS, Stage
from demo_pipeline_tests.golden.outputs import GOLDEN
from demo_pipeline_tests.golden.stage_code import PACKAGE, CodeClosure

RECORD_FILE = GOLDEN / "code_versions.json"
COMMAND = "`make code-versions`"


@dataclass(frozen=True)
class StageRecord:
    """The record of a stage: its code version, and hashes of its code and its golden outputs."""

    code_version: str
    code: str
    outputs: str


def stages() -> dict[str, Stage[Any]]:
    """Returns all stages by name. The stages of a demonstration come first."""
    all_stages: list[Stage[Any]] = [*STAGES, *dataset_stages()]
    return {stage.name: stage for stage in all_stages}


def functions(stage: Stage[Any]) -> Iterator[Callable[..., Any]]:
    """Yields the functions of a stage that decide its outputs: build and checks."""
    yield stage.build
    yield from (check.run for check in stage.checks)


def current_records(texts: Mapping[str, str]) -> dict[str, StageRecord]:
    """Returns the records of the current code, with the golden outputs `texts`."""
    return {
        name: StageRecord(
            stage.code_version, CodeClosure(functions(stage)).digest(), _outputs(texts, name)
        )
        for name, stage in stages().items()
    }


def _outputs(texts: Mapping[str, str], stage: str) -> str:
    files = {name: text for name, text in texts.items() if Path(name).stem == stage}
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def committed_records() -> dict[str, StageRecord]:
    """Reads the committed records."""
    entries = json.loads(RECORD_FILE.read_text("utf-8")) if RECORD_FILE.is_file() else {}
    return {name: StageRecord(**entry) for name, entry in entries.items()}


def write_records(records: Mapping[str, StageRecord]) -> None:
    """Writes the records to `code_versions.json`."""
    entries = {name: asdict(record) for name, record in records.items()}
    RECORD_FILE.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


def unrecorded(stage: str, before: StageRecord | None, now: StageRecord) -> str | None:
    """Returns the instruction for a stage whose record is out of date, or None if it is current."""
    if before == now:
        return None
    if before is None:
        return f"The stage {stage!r} is new. Record it with {COMMAND}."
    if refusal := not_raised(stage, before, now):
        return refusal
    if before.code != now.code and before.code_version == now.code_version:
        return (
            f"The code that the stage {stage!r} runs has changed. If it can write anything else "
            f"than before for the same input, raise its code version ({entry(stage)}) from "
            f"{now.code_version!r} to {_next(now)!r}. In both cases record the code with {COMMAND}."
        )
    return f"The record of the stage {stage!r} is out of date. Record it anew with {COMMAND}."


def not_raised(stage: str, before: StageRecord | None, now: StageRecord) -> str | None:
    """Returns the reason why a stage must not be recorded as it is, or None if it may be recorded.

    If golden outputs differ while the code is the same, an input or a setting has changed. A store
    notices such a change without a new code version.
    """
    if before is None or int(now.code_version) > int(before.code_version):
        return None
    if int(now.code_version) < int(before.code_version):
        return (
            f"The code version of the stage {stage!r} ({entry(stage)}) is {now.code_version!r}, "
            f"lower than the recorded {before.code_version!r}: give it a higher one."
        )
    if before.code != now.code and before.outputs != now.outputs:
        return (
            f"The code of the stage {stage!r} has changed and so have its golden outputs: raise "
            f"its code version ({entry(stage)}) from {now.code_version!r} to {_next(now)!r}, else "
            f"stores keep what the old code made. Then record it with {COMMAND}."
        )
    return None


def _next(record: StageRecord) -> str:
    return str(int(record.code_version) + 1)


@cache
def entry(stage: str) -> str:
    """Returns the place, `path:line`, of the call that declares a stage and its code version."""
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text("utf-8")
        declares = "code_version=" in source
        calls = ast.walk(ast.parse(source)) if declares else ()
        for node in calls:
            if isinstance(node, ast.Call) and _declares(node, stage):
                return f"{path.relative_to(PACKAGE.parent)}:{node.lineno}"
    raise LookupError(stage)


def _declares(call: ast.Call, stage: str) -> bool:
    words = {keyword.arg: keyword.value for keyword in call.keywords}
    named = words.get("asset") or words.get("name", call.args[0] if call.args else None)
    constants = {"ANNOTATIONS": ANNOTATIONS, "RECORDS": RECORDS, "OSWORLD_TASKS": OSWORLD_TASKS}
    value = constants.get(named.id) if isinstance(named, ast.Name) else None
    value = str(named.value) if isinstance(named, ast.Constant) else value
    return value == stage and "code_version" in words
