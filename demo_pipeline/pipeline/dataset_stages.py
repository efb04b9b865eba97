"""The datasets: which committed trajectories go in, which pure code makes each, its checks.

Belongs here: the wiring of the unpartitioned stages between store and pure code. Not here: what a
dataset looks like (datasets/).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from demo_pipeline import __version__
from demo_pipeline.datasets import cudag_build, index, messages, quests, sft
from demo_pipeline.datasets.card_content import (
    describe_cudag,
    describe_index,
    describe_messages,
    describe_sft,
)
from demo_pipeline.datasets.cudag_config import dataset_directory_name
from demo_pipeline.datasets.dataset_stats import messages_stats, sft_stats
from demo_pipeline.datasets.selection import DatasetTrajectory, load
from demo_pipeline.datasets.trajectories import PROVENANCE_FILE
from demo_pipeline.formats.cudag.validator import validate_cudag
from demo_pipeline.formats.desktopd.sft_validator import validate_sft
from demo_pipeline.formats.desktopd.validator import validate_dataset, validate_trajectory
from demo_pipeline.formats.messages.validator import validate_messages
from demo_pipeline.pipeline.build_if_stale import BuildResult, build_if_stale
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.demonstration_stages import STAGE_BY_NAME
from demo_pipeline.pipeline.quarantine import list_quarantine
from demo_pipeline.problems import DemonstrationError, Problem, errors
from demo_pipeline.settings import DatasetSettings, TrajectorySettings
from demo_pipeline.storage.errors import MissingOutput
from demo_pipeline.storage.store.staging import Staging
from demo_pipeline.storage.store.version_manifest import CheckOutcome, Recipe, Version

CODE_VERSION = "3"
TRAJECTORIES = STAGE_BY_NAME["trajectories"].folder
Summary = Mapping[str, Any]


@dataclass(frozen=True)
class CommittedTrajectories:
    """The committed trajectories a dataset is made from, by id, and how many were left out."""

    trajectories: tuple[DatasetTrajectory, ...]
    versions: Mapping[str, Version]
    left_out: Mapping[str, int]

    @property
    def provenance(self) -> list[Path]:
        """The provenance files that are there."""
        return [one.provenance for one in self.trajectories if one.provenance.is_file()]


@dataclass(frozen=True)
class AdvisoryCheck:
    """A check that warns, by limits that are settings: its name, what it watches, and how."""

    name: str
    description: str
    run: Callable[[Path, TrajectorySettings], Sequence[Problem]]


@dataclass(frozen=True)
class DatasetStage:
    """One unpartitioned stage.

    Attributes:
        name: of the asset.
        links: its output holds `trajectories/<id>` links to the exact versions it was made from.
        output: name of its output in the store.
        build: writes into a folder, returns a summary.
        check: looks at the written folder.
        watches: look too, and stop nothing.
    """

    name: str
    check_name: str
    description: str
    links: bool
    output: Callable[[CommittedTrajectories, DatasetSettings], str]
    build: Callable[[CommittedTrajectories, Path, DatasetSettings], Summary]
    check: Callable[[Path], Sequence[Problem]]
    watches: tuple[AdvisoryCheck, ...] = ()


def _build_index(members: CommittedTrajectories, out: Path, settings: DatasetSettings) -> Summary:
    maker = ("demo_pipeline", __version__)
    summary = index.build_index(members.trajectories, out, settings, maker)
    describe_index(out, settings)
    return {**asdict(summary), **summary.leaks.as_dict()}


def _build_sft(members: CommittedTrajectories, out: Path, settings: DatasetSettings) -> Summary:
    summary = sft.build_sft(members.trajectories, out, settings)
    describe_sft(out, settings, members.provenance, summary.left_out)
    return summary.as_dict()


def _build_messages(
    members: CommittedTrajectories, out: Path, settings: DatasetSettings
) -> Summary:
    summary = messages.build_messages(members.trajectories, out, settings)
    describe_messages(out, settings, members.provenance, summary.left_out)
    return summary.as_dict()


def _build_cudag(members: CommittedTrajectories, out: Path, settings: DatasetSettings) -> Summary:
    summary = cudag_build.build_cudag(members.trajectories, out, settings)
    describe_cudag(out, settings, members.provenance, summary.left_out)
    return summary.as_dict()


def _build_quests(members: CommittedTrajectories, out: Path, _settings: DatasetSettings) -> Summary:
    return asdict(quests.build_quests(members.trajectories, out))


def _cudag_output(members: CommittedTrajectories, settings: DatasetSettings) -> str:
    name = dataset_directory_name(members.trajectories, settings)
    return f"datasets/{name}"


def _check_sft(out: Path) -> list[Problem]:
    found = validate_sft(out / sft.SAMPLES_FILE, out)
    return found if errors(found) else [*found, *sft_stats(out, _linked(out))[1]]


def _check_messages(out: Path) -> list[Problem]:
    found = validate_messages(out)
    return found if errors(found) else [*found, *messages_stats(out, _linked(out))[1]]


def _linked(out: Path) -> list[Path]:
    """The provenance of the trajectories that a dataset links."""
    return sorted(out.glob(f"{TRAJECTORIES}/*/{PROVENANCE_FILE}"))


def _check_cudag(out: Path) -> list[Problem]:
    return [p for p in validate_cudag(out) if p.code != "directory_name"]


DATASET_STAGES: tuple[DatasetStage, ...] = (
    DatasetStage(
        "sft_samples",
        "sft_schema",
        "Every line is a seed 001 sample whose picture and tree exist.",
        True,
        lambda _members, _settings: "sft",
        _build_sft,
        _check_sft,
    ),
    DatasetStage(
        "messages_dataset",
        "messages_schema",
        "Every line fits the schema; roles alternate, parts match images, calls parse.",
        True,
        lambda _members, _settings: "messages",
        _build_messages,
        _check_messages,
    ),
    DatasetStage(
        "cudag_dataset",
        "cudag_schema",
        "The directory is a seed 003 dataset; splits are disjoint; coordinates agree.",
        False,
        _cudag_output,
        _build_cudag,
        _check_cudag,
    ),
    DatasetStage(
        "trajectory_index",
        "desktopd_dataset",
        "index.json, metadata.json and every indexed trajectory fit seed 001 and each other.",
        True,
        lambda _members, _settings: "dataset",
        _build_index,
        validate_dataset,
        (
            AdvisoryCheck(
                "leak_rate",
                "Few pictures show the pointer at its target, hardly any of them avoidably.",
                index.check_dataset_leaks,
            ),
        ),
    ),
    DatasetStage(
        "osworld_quests",
        "quest_files",
        "Every quest is a sound, listed OSWorld task file whose evaluator is null.",
        False,
        lambda _members, _settings: "osworld/quests",
        _build_quests,
        quests.check_quests,
    ),
)

DATASET_STAGE_BY_NAME: Mapping[str, DatasetStage] = {one.name: one for one in DATASET_STAGES}


@contextmanager
def committed_trajectories(pipeline: Workspace) -> Iterator[CommittedTrajectories]:
    """Every committed trajectory as a local folder; what is broken or missing is counted.

    A demonstration in quarantine whose last good trajectory is still committed goes in with that.
    """
    trajectories: list[DatasetTrajectory] = []
    versions: dict[str, Version] = {}
    left_out: Counter[str] = Counter(broken=0, quarantined=0)
    with ExitStack() as stack:
        for output in pipeline.store.outputs(TRAJECTORIES):
            key = output.rpartition("/")[2]
            try:
                folder, version = stack.enter_context(pipeline.store.open(output))
            except MissingOutput:
                left_out["broken"] += 1
                continue
            trajectories.append(DatasetTrajectory(key, folder, folder / PROVENANCE_FILE))
            versions[key] = version
        for record in list_quarantine(pipeline.store):
            left_out["quarantined"] += record.demonstration not in versions
        yield CommittedTrajectories(tuple(trajectories), versions, left_out)


def run_dataset_stage(
    pipeline: Workspace, aggregate: DatasetStage, *, force: bool = False
) -> BuildResult:
    """Make one dataset from what is committed now, unless it is up to date.

    Where its check fails, every trajectory is examined: those that rotted since they were committed
    are left out, and counted, and the dataset is made of the others.
    """
    with committed_trajectories(pipeline) as members:
        made = _make(pipeline, aggregate, members, force=force)
        if made.status != "rejected":
            return made
        sound = _sound(members)
        if len(sound.trajectories) == len(members.trajectories):
            return made
        return _make(pipeline, aggregate, sound, force=force)


def _sound(members: CommittedTrajectories) -> CommittedTrajectories:
    kept = [one for one in members.trajectories if _is_sound(one)]
    lost = len(members.trajectories) - len(kept)
    versions = {one.id: members.versions[one.id] for one in kept}
    left_out = {**members.left_out, "broken": members.left_out["broken"] + lost}
    return CommittedTrajectories(tuple(kept), versions, left_out)


def _is_sound(trajectory: DatasetTrajectory) -> bool:
    try:
        load(trajectory)
    except DemonstrationError:
        return False
    return not errors(validate_trajectory(trajectory.path, trajectory.id))


def _make(
    pipeline: Workspace, aggregate: DatasetStage, members: CommittedTrajectories, *, force: bool
) -> BuildResult:
    settings = pipeline.settings.datasets
    inputs = {key: version.content for key, version in members.versions.items()}
    inputs |= {f"left out: {name}": str(count) for name, count in members.left_out.items()}
    limits = pipeline.settings.trajectories
    if aggregate.watches:
        inputs["limits of trajectories"] = limits.fingerprint()
    recipe = Recipe(aggregate.name, CODE_VERSION, settings.fingerprint(), inputs)

    def build(staging: Staging) -> Summary:
        summary = dict(aggregate.build(members, staging.path, settings))
        summary["problems"] = [str(problem) for problem in summary.get("problems", ())]
        if aggregate.links:
            for key, version in members.versions.items():
                staging.link(f"{TRAJECTORIES}/{key}", version)
        return summary | {"left_out": dict(members.left_out)}

    def check(out: Path) -> list[CheckOutcome]:
        problems = tuple(aggregate.check(out))
        verdicts = [CheckOutcome(aggregate.check_name, not errors(problems), problems)]
        for watch in aggregate.watches if verdicts[0].passed else ():
            found = tuple(watch.run(out, limits))
            verdicts.append(CheckOutcome(watch.name, not found, found, blocking=False))
        return verdicts

    output = aggregate.output(members, settings)
    return build_if_stale(pipeline.store, output, recipe, build, check, force=force)
