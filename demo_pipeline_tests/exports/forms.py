"""Functions that build and validate the datasets of each export form, for tests."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from demo_pipeline.exports.assemble import build_form
from demo_pipeline.exports.cards import describe_form
from demo_pipeline.exports.dataset_stages import export_of
from demo_pipeline.exports.dataset_statistics import DatasetStats
from demo_pipeline.exports.export_summary import CardFacts, ExportSummary
from demo_pipeline.exports.form import form_of
from demo_pipeline.files.parquet import read_rows
from demo_pipeline.problems import Problem
from demo_pipeline.settings import DatasetSettings, Settings
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory


def validate_as(name: str, path: Path) -> list[Problem]:
    """Returns the problems that `demo-pipeline validate` reports for a dataset of an export form.

    Args:
        name: name of the form, such as `sft`.
        path: folder or file of the dataset.
    """
    return list(export_of(form_of(name)).validated_as.validate(path, Settings()))


build_sft, build_messages, build_cudag, build_step_labels = (
    partial(build_form, form_of(name)) for name in ("sft", "messages", "cudag", "step_labels")
)
AGENTNET_FORM, ATIF_FORM, CUA_LITE_FORM = map(form_of, ("agentnet", "atif", "cua_lite"))
validate_agentnet, validate_atif, validate_cua_lite = (
    partial(validate_as, name) for name in ("agentnet", "atif", "cua_lite")
)
validate_step_labels, validate_messages = (
    partial(validate_as, name) for name in ("step_labels", "messages")
)


def build_train(
    name: str, tmp_path: Path, *demos: DatasetTrajectory, **settings: Any
) -> tuple[ExportSummary, list[dict[str, Any]]]:
    """Builds and validates a dataset with all rows in train; returns its summary and its rows."""
    out = tmp_path / "out"
    chosen = DatasetSettings(train_ratio=1, val_ratio=0, **settings)
    summary = build_form(form_of(name), demos, out, chosen)
    assert validate_as(name, out) == []
    return summary, read_rows(out / "train.parquet")


def build_described(
    name: str, demos: Sequence[DatasetTrajectory], out: Path, settings: DatasetSettings
) -> DatasetStats:
    """Builds a dataset with its card and charts; returns the numbers in the card."""
    form = form_of(name)
    facts = CardFacts()
    summary = build_form(form, demos, out, settings, facts)
    provenance = [demo.provenance for demo in demos]
    return describe_form(form, out, settings, (facts, provenance), summary)
