"""Collects the names that people type, click and query, from the definitions.

These are names of assets, checks, jobs, settings, columns and problem codes. Nothing is built.
"""

import ast
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import typer
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

from demo_pipeline.actions.action_tables import ACCOUNTING_SCHEMA, ACTIONS_SCHEMA
from demo_pipeline.cli.app import app
from demo_pipeline.datasets.index import EXPORTS_SCHEMA, TRAJECTORIES_SCHEMA
from demo_pipeline.defs import build_defs
from demo_pipeline.evaluation.scoring import SCORES_SCHEMA, STEPS_SCHEMA
from demo_pipeline.exports.sft import SFT_SCHEMA
from demo_pipeline.observation.frames.frames_table import FRAMES_SCHEMA
from demo_pipeline.observation.frames.screenshot_files import PICTURES_SCHEMA
from demo_pipeline.observation.trees.ui_trees import UI_TREES_SCHEMA
from demo_pipeline.osworld.task_files import CATALOG_SCHEMA, PROBLEMS_SCHEMA
from demo_pipeline.recording.input_log import EVENTS_SCHEMA, REJECTED_SCHEMA, SCANS_SCHEMA
from demo_pipeline.settings import BUILT_IN_EXPORTS, Section, Settings, project_root
from demo_pipeline.trajectories.provenance import HIDDEN_ACTIONS_SCHEMA, PROVENANCE_SCHEMA

PACKAGE = Path(__file__).resolve().parents[2] / "demo_pipeline"
TERMINAL = {"COLUMNS": "120", "LINES": "50", "TERM": "dumb", "NO_COLOR": "1"}
# Path of a table in the store → its columns. `<id>` stands for the id of a demonstration.
TABLES = {
    "events/<id>/events.parquet": EVENTS_SCHEMA,
    "events/<id>/rejected.parquet": REJECTED_SCHEMA,
    "events/<id>/trees.parquet": SCANS_SCHEMA,
    "actions/<id>/actions.parquet": ACTIONS_SCHEMA,
    "actions/<id>/ledger.parquet": ACCOUNTING_SCHEMA,
    "screenshots/<id>/frames.parquet": FRAMES_SCHEMA,
    "screenshots/<id>/pictures.parquet": PICTURES_SCHEMA,
    "ui_trees/<id>/trees.parquet": UI_TREES_SCHEMA,
    "trajectories/<id>/provenance.parquet": PROVENANCE_SCHEMA,
    "dataset/steps.parquet": PROVENANCE_SCHEMA,
    "trajectories/<id>/hidden_actions.parquet": HIDDEN_ACTIONS_SCHEMA,
    "dataset/hidden_actions.parquet": HIDDEN_ACTIONS_SCHEMA,
    "dataset/trajectories.parquet": TRAJECTORIES_SCHEMA,
    "dataset/exports.parquet": EXPORTS_SCHEMA,
    "sft/*.parquet": SFT_SCHEMA,
    "osworld/tasks/catalog.parquet": CATALOG_SCHEMA,
    "osworld/tasks/problems.parquet": PROBLEMS_SCHEMA,
    "eval score --out/scores.parquet": SCORES_SCHEMA,
    "eval score --out/steps.parquet": STEPS_SCHEMA,
}
EVERY_EXPORT: tuple[str, ...] = BUILT_IN_EXPORTS


def visible_names(recorded_names: Iterable[str] = ()) -> dict[str, str]:
    """Returns name → what people see under the name, as text. Every export is enabled.

    Args:
        recorded_names: names from an earlier call. Their problem codes are kept as long as the
            source contains the codes.
    """
    with tempfile.TemporaryDirectory() as folder:
        roots: Any = {name: f"{folder}/{name}" for name in ("uploads", "store", "cache")}
        exports: Any = {"exports": EVERY_EXPORT}
        defs = build_defs(Settings(**roots, datasets=exports))
        return {
            **dict(_assets(defs)),
            **dict(_automation(defs)),
            **dict(_settings(Settings)),
            **dict(_columns()),
            **dict.fromkeys(_problem_codes(set(recorded_names)), ""),
            **dict(_commands()),
        }


def _assets(defs: dg.Definitions) -> Iterator[tuple[str, str]]:
    for spec in defs.resolve_all_asset_specs():
        name = spec.key.to_user_string()
        inputs = sorted(dep.asset_key.to_user_string() for dep in spec.deps)
        seen = (spec.group_name, inputs, sorted(spec.kinds), spec.partitions_def, spec.owners)
        yield f"asset {name}", f"{seen} {spec.description}"
    graph = defs.resolve_asset_graph()
    for key in graph.asset_check_keys:
        check = graph.get_check_spec(key)
        name = f"{key.asset_key.to_user_string()} {key.name}"
        yield f"check {name}", f"{check.blocking} {check.description}"


def _automation(defs: dg.Definitions) -> Iterator[tuple[str, str]]:
    repository = defs.get_repository_def()
    for job in repository.get_all_jobs():
        if not job.name.startswith("__"):
            layer = job.asset_layer
            assets = sorted(key.to_user_string() for key in layer.executable_asset_keys)
            checks = sorted(
                f"{key.asset_key.to_user_string()} {key.name}"
                for key in layer.asset_graph.asset_check_keys
            )
            yield f"job {job.name}", f"{assets} {checks} {job.description}"
    for sensor in repository.sensor_defs:
        jobs = sorted(target.job_name for target in sensor.targets)
        seen = (sensor.default_status.value, sensor.minimum_interval_seconds, sensor.description)
        yield f"sensor {sensor.name}", f"{seen} {jobs}"
    for schedule in repository.schedule_defs:
        when = (schedule.default_status.value, schedule.cron_schedule, schedule.description)
        yield f"schedule {schedule.name}", str(when)


def _settings(kind: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, field in kind.model_fields.items():
        if isinstance(field.default, Section):
            yield from _settings(type(field.default), f"{prefix}{name}.")
        else:
            yield f"setting {prefix}{name}", _setting(field)


def _setting(field: FieldInfo) -> str:
    default = "made" if field.default_factory else repr(field.default)
    limits = [str(limit) for limit in field.metadata]
    kind = re.sub(r"\b(\w+\.)+", "", str(field.annotation))  # without the names of modules
    kind = re.sub(r" at 0x[0-9a-f]+", "", kind)  # the address of a validating function
    return f"{kind} {default} {limits} {field.description}".replace(str(project_root()), "")


def _columns() -> Iterator[tuple[str, str]]:
    for path, schema in TABLES.items():
        for place, field in enumerate(schema):
            meaning = (field.metadata or {}).get(b"description", b"").decode()
            yield f"column {path} {field.name}", f"{place} {field.type} {field.nullable} {meaning}"


def _problem_codes(recorded_names: set[str]) -> Iterator[str]:
    """Yields `problem <code>` for codes in calls of `Problem` and its helpers, and for known codes.

    A known code is yielded wherever the source contains it, so that moving the code changes
    nothing.
    """
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and "roblem" in ast.unparse(node.func):
                values = [*node.args[:1], *(word.value for word in node.keywords)]
                yield from (f"problem {text}" for text in map(_constant, values) if text)
            elif (text := _constant(node)) and f"problem {text}" in recorded_names:
                yield f"problem {text}"


def _constant(node: ast.AST) -> str:
    """Returns the text of a constant that may be a problem code; otherwise an empty text."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) and re.fullmatch(r"[a-z]+(_[a-z]+)+", value) else ""


def _commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yields every command of the command line with its help."""
    command = command or typer.main.get_command(app)
    help_text = CliRunner().invoke(app, [*path, "--help"], env=TERMINAL).stdout
    yield " ".join(("command demo-pipeline", *path)), help_text
    for name, child in sorted(getattr(command, "commands", {}).items()):
        yield from _commands(child, (*path, name))
