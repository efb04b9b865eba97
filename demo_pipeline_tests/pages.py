"""The pages that are generated from the code: settings, tables and assets (`make docs`).

Belongs here: what these pages say. A test compares them with the files in `docs/`.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pyarrow as pa
from pydantic.fields import FieldInfo

from demo_pipeline.actions.action_tables import ACCOUNTING_SCHEMA, ACTIONS_SCHEMA
from demo_pipeline.datasets.index import EXPORTS_SCHEMA, TRAJECTORIES_SCHEMA
from demo_pipeline.defs.dataset_assets import added_checks
from demo_pipeline.defs.evaluation_assets import evaluation_scores
from demo_pipeline.defs.jobs import demonstration_catalog
from demo_pipeline.evaluation.score_tables import SCORES_SCHEMA, STEPS_SCHEMA
from demo_pipeline.exports.sft import SFT_SCHEMA
from demo_pipeline.files.column_values import ANY, column_domains
from demo_pipeline.files.parquet import column_descriptions
from demo_pipeline.observation.frames.screenshot_writer import THUMBNAILS_SCHEMA
from demo_pipeline.observation.frames.screenshots import FRAMES_SCHEMA
from demo_pipeline.observation.trees.ui_trees import UI_TREES_SCHEMA
from demo_pipeline.osworld.task_table import CATALOG_SCHEMA, PROBLEMS_SCHEMA
from demo_pipeline.recording.input_log import EVENTS_SCHEMA, REJECTED_SCHEMA, SCANS_SCHEMA
from demo_pipeline.runs.quarantine_table import QUARANTINE_SCHEMA
from demo_pipeline.runs.stages import DATASET_STAGES, STAGES, upstream
from demo_pipeline.settings import Section, Settings, project_root
from demo_pipeline.stage import Stage
from demo_pipeline.trajectories.provenance import HIDDEN_ACTIONS_SCHEMA, PROVENANCE_SCHEMA
from demo_pipeline_tests.asset_graph import asset_graph

DOCS = Path(__file__).resolve().parents[1] / "docs"
_NOTE = "<!-- Written by `make docs`; change the code that it describes instead. -->\n"
_CHECK_HEAD = ("check", "blocking", "verifies")
# Path in the store, what a row is, the columns. `<id>` is a demonstration.
TABLES: tuple[tuple[str, str, pa.Schema], ...] = (
    ("events/<id>/events.parquet", "an accepted line of the input log", EVENTS_SCHEMA),
    ("events/<id>/rejected.parquet", "a line that could not be read", REJECTED_SCHEMA),
    ("events/<id>/trees.parquet", "an accessibility scan in the log", SCANS_SCHEMA),
    ("actions/<id>/actions.parquet", "an action, or a pause", ACTIONS_SCHEMA),
    ("actions/<id>/ledger.parquet", "what became of a line of the log", ACCOUNTING_SCHEMA),
    ("screenshots/<id>/frames.parquet", "the frame chosen for an action", FRAMES_SCHEMA),
    ("screenshots/<id>/thumbnails.parquet", "a small picture of a screenshot", THUMBNAILS_SCHEMA),
    ("ui_trees/<id>/trees.parquet", "the tree and the target of an action", UI_TREES_SCHEMA),
    ("trajectories/<id>/provenance.parquet", "a step of a trajectory", PROVENANCE_SCHEMA),
    ("dataset/steps.parquet", "the same, of all trajectories", PROVENANCE_SCHEMA),
    (
        "trajectories/<id>/hidden_actions.parquet",
        "an action that no screenshot shows",
        HIDDEN_ACTIONS_SCHEMA,
    ),
    ("dataset/hidden_actions.parquet", "the same, of all trajectories", HIDDEN_ACTIONS_SCHEMA),
    ("dataset/trajectories.parquet", "a trajectory", TRAJECTORIES_SCHEMA),
    ("dataset/exports.parquet", "a trajectory in a training export", EXPORTS_SCHEMA),
    ("sft/*.parquet", "an SFT sample", SFT_SCHEMA),
    ("osworld/tasks/catalog.parquet", "an OSWorld task file", CATALOG_SCHEMA),
    ("osworld/tasks/problems.parquet", "a problem of an OSWorld task file", PROBLEMS_SCHEMA),
    ("quarantine_table/quarantine.parquet", "a problem of a demonstration", QUARANTINE_SCHEMA),
    (
        "evaluation_scores/<name>/scores.parquet",
        "a group of steps under a rule, for the predictions or a baseline",
        SCORES_SCHEMA,
    ),
    (
        "evaluation_scores/<name>/steps.parquet",
        "a step under a rule, and how it was answered",
        STEPS_SCHEMA,
    ),
)


def generated_pages() -> dict[str, str]:
    """File name in `docs/` → text."""
    return {
        "settings.md": "".join(_settings()),
        "tables.md": "".join(_tables()),
        "assets.md": "".join(_assets()),
        "images/assets.svg": asset_graph(),
    }


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |\n| {' | '.join('---' for _ in head)} |\n"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n"


def _settings() -> Iterator[str]:
    yield f"# Settings\n\n{_NOTE}\n"
    yield (
        "Every path and threshold is a setting. A value is taken from the environment, else from"
        " the settings file, else it is\nthe default. The settings file is `demo_pipeline.toml`"
        " beside `pyproject.toml`, or the file that `DEMO_PIPELINE_CONFIG` names:\n\n"
        '```toml\n[actions]\nclick_radius_px = 8.0\n\n[datasets]\nheld_out_applications = ["gimp"]'
        "\n```\n\nThe same in the environment, where two underscores follow the section and lists"
        " are JSON:\n\n"
        "```bash\nexport DEMO_PIPELINE_ACTIONS__CLICK_RADIUS_PX=8\n"
        "export DEMO_PIPELINE_DATASETS__HELD_OUT_APPLICATIONS='[\"gimp\"]'\n```\n\n"
        "Names that are not settings are refused, in the file and in the environment; names of"
        " earlier versions are refused with\nthe present name. A stage is built again only when"
        " its own section, its inputs or its code version changed.\n\n"
        "Credentials are not settings: they come from the environment of the S3 client"
        " ([operations](operations.md#uploads-in-a-bucket)).\n"
    )
    roots = {
        name: field
        for name, field in Settings.model_fields.items()
        if not isinstance(field.default, Section)
    }
    yield "\n## Roots\n\nThe places that the pipeline reads and writes. They change no output.\n\n"
    yield from _setting_rows(roots, "")
    defaults = Settings.model_construct()
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, Section):
            kind = type(field.default)
            yield f"\n## {name}\n\n{inspect.getdoc(kind)}\n\n{_depending(name, defaults)}\n\n"
            yield from _setting_rows(kind.model_fields, f"{name}.")


def _depending(section: str, settings: Settings) -> str:
    """Which outputs depend on a section, as a sentence."""
    value = getattr(settings, section)
    stages: list[Stage] = [*STAGES, *DATASET_STAGES]
    names = [
        f"`{stage.name}`"
        for stage in stages
        if any(read(settings) is value for read in _sections_read(stage))
    ]
    if not names:
        return "A change builds nothing again."
    return f"A change builds again: {', '.join(names)}, and what depends on them."


def _sections_read(stage: Stage) -> list[Callable[[Settings], Section]]:
    return [*([stage.section] if stage.section else []), *stage.limits.values()]


def _setting_rows(fields: Mapping[str, FieldInfo], prefix: str) -> Iterator[str]:
    rows = [
        (f"`{prefix}{name}`", _default(field), _meaning(field)) for name, field in fields.items()
    ]
    yield from _table(("setting", "default", "meaning"), rows)


def _default(field: FieldInfo) -> str:
    if field.default_factory is None:
        return f"`{_toml(field.default)}`"
    value = field.default_factory()  # type: ignore[call-arg]
    if isinstance(value, str):
        return f"`{Path(value).relative_to(project_root())}`"
    return "number of processors"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value)


def _meaning(field: FieldInfo) -> str:
    assert field.description is not None
    kind, few = field.annotation, "one"
    if get_origin(kind) is tuple:
        kind, few = get_args(kind)[0], "some"
    if get_origin(kind) is Literal:
        choices = ", ".join(f"`{choice}`" for choice in get_args(kind))
        return f"{field.description} ({few} of {choices})"
    return field.description


def _tables() -> Iterator[str]:
    yield f"# Tables\n\n{_NOTE}\n"
    yield (
        "Every Parquet table in the store, with its columns. Types are Arrow's; `?` marks a column"
        " that may be null. The values that a\ncolumn may have are checked after every build;"
        " the descriptions are in the files too, as metadata of the columns."
        " `messages/*.parquet` has the keys of a chat record"
        " ([formats](formats.md#messages)).\nTables of exports on request are in"
        " [formats](formats.md).\n"
    )
    for path, row, schema in TABLES:
        yield f"\n## `{path}`\n\nA row is {row}.\n\n"
        descriptions = column_descriptions(schema)
        domains = dict(column_domains(schema))
        yield from _table(
            ("column", "type", "values", "meaning"),
            [
                (
                    f"`{field.name}`",
                    f"{_type(field.type)}{'?' if field.nullable else ''}",
                    domains.get(field.name, ANY).words,
                    descriptions[field.name],
                )
                for field in schema
            ],
        )


def _type(kind: pa.DataType) -> str:
    return str(kind).replace("<", " of ").replace("element: ", "").replace(">", "")


def _assets() -> Iterator[str]:
    yield f"# Assets\n\n{_NOTE}\n"
    yield (
        "Every stage is an asset in Dagster, with its checks. The stages of a demonstration are"
        " partitioned by its id; the dataset\nstages are not. A failed blocking check keeps the"
        " output from being published. A training export is an asset while `datasets.exports`"
        " names it.\n"
    )
    for title, stages in (
        ("Stages of a demonstration", STAGES),
        ("Dataset stages", DATASET_STAGES),
    ):
        yield f"\n## {title}\n"
        for stage in stages:
            yield from _asset(stage)
    yield (
        "\n## Other assets\n\nThese are no stages. `demonstration_catalog` registers the uploads as"
        " partitions; `evaluation_scores` scores every folder of\npredictions. None of their"
        " checks blocks.\n"
    )
    for asset in (demonstration_catalog, evaluation_scores):
        yield f"\n### {asset.key.to_user_string()}\n\n{asset.descriptions_by_key[asset.key]}\n\n"
        yield from _table(
            _CHECK_HEAD,
            [
                _check(spec.name, spec.description or "", spec.blocking)
                for spec in asset.check_specs
            ],
        )


def _asset(stage: Stage) -> Iterator[str]:
    if stage in STAGES:
        output, names = stage.output("<id>"), stage.inputs
    else:
        output = f"{stage.folder}/<name>" if stage.subfolder else stage.folder
        names = upstream(stage)
    inputs = ", ".join(f"`{name}`" for name in names) or "none of the store"
    yield f"\n### {stage.name}\n\n{stage.description}\n\n"
    yield f"Output `{output}/`, inputs: {inputs}.\n\n"
    rows = [_check(check.name, check.description, check.blocking) for check in stage.checks]
    added = added_checks(stage) if isinstance(stage, Stage) else {}
    rows += [_check(name, description, False) for name, description in added.items()]
    yield from _table(_CHECK_HEAD, rows)


def _check(name: str, description: str, blocking: bool) -> tuple[str, str, str]:
    return f"`{name}`", "yes" if blocking else "no", description


if __name__ == "__main__":
    for name, text in generated_pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
