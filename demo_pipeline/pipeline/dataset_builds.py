"""Build functions and checks of the datasets: from a stage's context to the pure code.

Belongs here: short functions that the entries of dataset_stages.py name. What a dataset looks like
is decided in datasets/.
"""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from demo_pipeline import __version__
from demo_pipeline.common.known_lines import KnownLines
from demo_pipeline.datasets import cudag_build, index, messages, quests, sft
from demo_pipeline.datasets.card_content import (
    describe_cudag,
    describe_index,
    describe_messages,
    describe_sft,
)
from demo_pipeline.datasets.cudag_config import dataset_directory_name
from demo_pipeline.datasets.dataset_stats import messages_stats, sft_stats
from demo_pipeline.datasets.export_parts import kept_parts
from demo_pipeline.formats.cudag.validator import validate_cudag
from demo_pipeline.formats.desktopd.sft_folder import validate_sft_folder
from demo_pipeline.formats.desktopd.validator import validate_dataset
from demo_pipeline.formats.messages.validator import validate_messages
from demo_pipeline.pipeline.context import DatasetContext, Summary
from demo_pipeline.problems import Problem, errors


def run_index(context: DatasetContext, out: Path) -> Summary:
    """The index with its card."""
    settings, tool = context.settings.datasets, ("demo_pipeline", __version__)
    trajectories = context.committed.trajectories
    summary = index.build_index(trajectories, out, settings, tool, context.exports)
    describe_index(out, settings)
    return {**asdict(summary), **summary.leaks.as_dict()}


def verify_index(_context: DatasetContext, out: Path) -> list[Problem]:
    """The folder against the OSWorld-Desktopd format."""
    return validate_dataset(out)


def verify_index_leaks(context: DatasetContext, out: Path) -> list[Problem]:
    """The leak rates against their limits."""
    return index.check_dataset_leaks(out, context.settings.trajectories)


def run_sft(context: DatasetContext, out: Path) -> Summary:
    """The SFT samples with their card."""
    committed, settings = context.committed, context.settings.datasets
    summary = sft.build_sft(committed.trajectories, out, settings)
    describe_sft(out, settings, committed.provenance, summary.left_out)
    return summary.as_dict()


def verify_sft(context: DatasetContext, out: Path) -> list[Problem]:
    """The samples against their format, and no task in two splits."""
    found = _with_known_lines(lambda known: validate_sft_folder(out, out, known))
    return found if errors(found) else [*found, *sft_stats(out, context.committed.provenance)[1]]


def run_messages(context: DatasetContext, out: Path) -> Summary:
    """The chats with their card."""
    committed, settings = context.committed, context.settings.datasets
    summary = messages.build_messages(committed.trajectories, out, settings)
    describe_messages(out, settings, committed.provenance, summary.left_out)
    return summary.as_dict()


def verify_messages(context: DatasetContext, out: Path) -> list[Problem]:
    """The chats against their format, and no task in two splits."""
    found = _with_known_lines(lambda known: validate_messages(out, known))
    if errors(found):
        return found
    return [*found, *messages_stats(out, context.committed.provenance)[1]]


def run_cudag(context: DatasetContext, out: Path) -> Summary:
    """The CUDAG directory with its card."""
    committed, settings = context.committed, context.settings.datasets
    summary = cudag_build.build_cudag(committed.trajectories, out, settings)
    describe_cudag(out, settings, committed.provenance, summary.left_out)
    return summary.as_dict()


def verify_cudag(_context: DatasetContext, out: Path) -> list[Problem]:
    """The directory against its format; its name is only right once it is published."""

    def check(known: KnownLines) -> list[Problem]:
        found = validate_cudag(out, known)
        return [problem for problem in found if problem.code != "directory_name"]

    return _with_known_lines(check)


def cudag_directory(context: DatasetContext) -> str:
    """Name of the CUDAG directory, `<prefix>--<user>--<timestamp>`."""
    return dataset_directory_name(context.committed.trajectories, context.settings.datasets)


def run_quests(context: DatasetContext, out: Path) -> Summary:
    """The quests as OSWorld task files."""
    return asdict(quests.build_quests(context.committed.trajectories, out))


def verify_quests(_context: DatasetContext, out: Path) -> list[Problem]:
    """Every quest against the OSWorld task format."""
    return quests.check_quests(out)


def _with_known_lines(check: Callable[[KnownLines], list[Problem]]) -> list[Problem]:
    """Check only lines that no earlier build has found valid; keep the verdict on the new ones.

    A rebuild that is forced, and `demo-pipeline validate`, check all lines.
    """
    parts = kept_parts()
    known = parts.kept_lines() if parts else KnownLines()
    found = check(known)
    if parts and not found:
        parts.keep_lines(known)
    return found
