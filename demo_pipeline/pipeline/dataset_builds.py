"""Build functions and checks of the datasets: from a stage's context to the pure code.

Belongs here: short functions that the entries of dataset_stages.py name. What a dataset looks like
is decided in datasets/.
"""

from dataclasses import asdict
from pathlib import Path

from demo_pipeline import __version__
from demo_pipeline.datasets import index, quests
from demo_pipeline.desktopd.validator import validate_dataset
from demo_pipeline.evaluation.agentnetbench_files import build_agentnetbench
from demo_pipeline.exports import messages, sft
from demo_pipeline.exports.agentnetbench import validate_agentnetbench
from demo_pipeline.exports.cards import (
    describe_cudag,
    describe_index,
    describe_messages,
    describe_sft,
)
from demo_pipeline.exports.cudag import build
from demo_pipeline.exports.cudag.build import dataset_directory_name
from demo_pipeline.exports.cudag.validator import validate_cudag
from demo_pipeline.exports.dataset_stats import messages_stats, sft_stats
from demo_pipeline.exports.messages_validator import validate_messages
from demo_pipeline.exports.sft_validator import validate_sft_folder
from demo_pipeline.files.line_digests import KnownLines
from demo_pipeline.pipeline.context import DatasetContext, Summary
from demo_pipeline.pipeline.kept_verdicts import TrajectoryVerdicts, with_known_lines
from demo_pipeline.problems import Problem, errors


def run_index(context: DatasetContext, out: Path) -> Summary:
    """The index with its card."""
    settings, tool = context.settings.datasets, ("demo_pipeline", __version__)
    trajectories = context.committed.trajectories
    summary = index.build_index(trajectories, out, settings, tool, context.exports)
    describe_index(out, settings)
    return {**asdict(summary), **summary.leaks.as_dict()}


def verify_index(context: DatasetContext, out: Path) -> list[Problem]:
    """The folder against the OSWorld-Desktopd format; unchanged trajectories are not read again."""
    verdicts = TrajectoryVerdicts(context.committed.trajectories)
    found = validate_dataset(out, verdicts.known)
    verdicts.keep()
    return found


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
    found = with_known_lines(lambda known: validate_sft_folder(out, out, known))
    return found if errors(found) else [*found, *sft_stats(out, context.committed.provenance)[1]]


def run_messages(context: DatasetContext, out: Path) -> Summary:
    """The chats with their card."""
    committed, settings = context.committed, context.settings.datasets
    summary = messages.build_messages(committed.trajectories, out, settings)
    describe_messages(out, settings, committed.provenance, summary.left_out)
    return summary.as_dict()


def verify_messages(context: DatasetContext, out: Path) -> list[Problem]:
    """The chats against their format, and no task in two splits."""
    found = with_known_lines(lambda known: validate_messages(out, known))
    if errors(found):
        return found
    return [*found, *messages_stats(out, context.committed.provenance)[1]]


def run_cudag(context: DatasetContext, out: Path) -> Summary:
    """The CUDAG directory with its card."""
    committed, settings = context.committed, context.settings.datasets
    summary = build.build_cudag(committed.trajectories, out, settings)
    describe_cudag(out, settings, committed.provenance, summary.left_out)
    return summary.as_dict()


def verify_cudag(_context: DatasetContext, out: Path) -> list[Problem]:
    """The directory against its format; its name is only right once it is published."""

    def check(known: KnownLines) -> list[Problem]:
        found = validate_cudag(out, known)
        return [problem for problem in found if problem.code != "directory_name"]

    return with_known_lines(check)


def cudag_directory(context: DatasetContext) -> str:
    """Name of the CUDAG directory, `<prefix>--<user>--<timestamp>`."""
    return dataset_directory_name(context.committed.trajectories, context.settings.datasets)


def run_agentnetbench(context: DatasetContext, out: Path) -> Summary:
    """The test split as AgentNetBench's files."""
    committed, settings = context.committed, context.settings.datasets
    return build_agentnetbench(committed.trajectories, out, settings).as_dict()


def verify_agentnetbench(_context: DatasetContext, out: Path) -> list[Problem]:
    """The files against AgentNetBench's form."""
    return validate_agentnetbench(out)


def run_quests(context: DatasetContext, out: Path) -> Summary:
    """The quests as OSWorld task files."""
    return asdict(quests.build_quests(context.committed.trajectories, out))


def verify_quests(_context: DatasetContext, out: Path) -> list[Problem]:
    """Every quest against the OSWorld task format."""
    return quests.check_quests(out)
