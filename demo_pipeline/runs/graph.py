"""The graph of outputs: decides whether an output is up to date, and builds it.

An output is a folder in the store that a stage builds for a demonstration or for a dataset. The
command line, sensors, assets and index all use `Graph.state` and `Graph.build`.

The classes of outputs are in demonstration_outputs.py, dataset_outputs.py and
imported_trajectories.py.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic

from demo_pipeline.datasets.dataset_inputs import CommittedTrajectories
from demo_pipeline.files.processes import reduced_python_gc
from demo_pipeline.problems import DemonstrationError, Problem, errors
from demo_pipeline.runs.committed_trajectories import committed_trajectories, damaged_records
from demo_pipeline.runs.damage import RECORDS_AND_SOURCES, noted_demonstrations, unusable_output
from demo_pipeline.runs.failures import (
    DefectError,
    RefusedError,
    TransientError,
    UnusableInputError,
    best_effort,
    redacted_errors,
    transient_reason,
)
from demo_pipeline.runs.results import BuildResult, Status
from demo_pipeline.runs.setting_notes import note_settings
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import AnyInputs, Stage, Summary
from demo_pipeline.store.errors import MissingOutput, OutputError
from demo_pipeline.store.versions import (
    CheckOutcome,
    OutputDamage,
    Recipe,
    Staging,
    Version,
    VersionKey,
)

# `Stale.why` of an output that is stale only because an input is stale.
AFTER_INPUTS = "perhaps, when what it reads has changed"
DAMAGED = "a file was damaged"
SETTINGS_CHANGED = "its settings changed"
_LOG = logging.getLogger(__package__)


class Cause(StrEnum):
    """A kind of change since an output was built.

    Attributes:
        CODE: the code version of the stage changed.
        SETTINGS: a setting that the stage reads changed.
        INPUTS: an input of the output changed, or cannot be used.
        FILES: a file of the output is missing or damaged.
    """

    CODE = "code"
    SETTINGS = "settings"
    INPUTS = "inputs"
    FILES = "files"


@dataclass(frozen=True)
class Current:
    """The state of an output that is up to date: a build would not change it."""

    version: Version


@dataclass(frozen=True)
class Stale:
    """The state of an output that is out of date, so that a build may change it.

    Attributes:
        version: the published version.
        causes: the kinds of all changes since it was built.
        why: a phrase for people that describes the first change.
    """

    version: Version
    causes: frozenset[Cause]
    why: str


@dataclass(frozen=True)
class Refused:
    """The state of an output whose last build rejected the current inputs.

    Attributes:
        version: the published version; None if there is none.
        why: the reason for the rejection, as shown to people.
    """

    version: Version | None
    why: str


@dataclass(frozen=True)
class Absent:
    """The state of an output without a published version."""

    version: None = None
    why: str = "there is no version"


State = Current | Stale | Refused | Absent


def is_of_present_inputs(state: State) -> bool:
    """Returns whether an output is undamaged and built from its current inputs.

    Changes of code or settings since the build are ignored.
    """
    if isinstance(state, Stale):
        return state.causes <= {Cause.CODE, Cause.SETTINGS}
    return isinstance(state, Current)


@dataclass(frozen=True, kw_only=True)
class BuildPlan(Generic[AnyInputs]):
    """How to build an output with the current inputs, code and settings.

    Attributes:
        recipe: fingerprints of everything that the output depends on.
        open_inputs: opens the inputs for the stage's build function, creates links in the staged
            folder, and lists versions whose files the build may hard-link.
        complete_summary: adds facts to the summary that the build function returned.
        require_same_inputs: raises an error if the inputs changed after the build began.
    """

    recipe: Recipe
    open_inputs: Callable[[Staging], AbstractContextManager[AnyInputs]]
    complete_summary: Callable[[Summary], Summary] = dict
    require_same_inputs: Callable[[], None] = lambda: None


class Output(ABC, Generic[AnyInputs]):
    """The output that a stage builds for a demonstration or for a dataset.

    Attributes:
        key: the id of the demonstration; empty for a dataset.
    """

    def __init__(self, graph: "Graph", stage: Stage[AnyInputs], key: str = "") -> None:
        self.graph = graph
        self.stage = stage
        self.key = key

    @property
    def name(self) -> str:
        """The name of the output in the store."""
        return self.stage.output(self.key)

    def inputs(self) -> Sequence["Output[Any]"]:
        """Returns the outputs that must be up to date for this output to be up to date."""
        return ()

    def names_of_inputs(self) -> list[str]:
        """Returns the names of all outputs that a build reads."""
        return [output.name for output in self.inputs()]

    @abstractmethod
    def plan(self) -> BuildPlan[AnyInputs]:
        """Returns the plan for building this output with the current inputs, code and settings.

        Raises:
            MissingOutput: a required input was never built, or one of its files is missing.
            DemonstrationError: the upload cannot be read.
        """

    def prepare(self) -> None:
        """Prepares a build, and raises an error if the build must not begin now.

        Called only before the first attempt.
        """

    def can_retry(self, error: DemonstrationError | OutputError) -> bool:
        """Returns whether the build should be attempted again after this error.

        May raise another error that describes the cause better.
        """
        del error
        return False

    def refusal(self) -> str:
        """Returns why the last build rejected the current inputs, or an empty string."""
        return ""

    def remember_refusal(self, error: RefusedError) -> None:
        """Stores why a build rejected its inputs, so that `refusal` can return it."""

    def remember_failure(self, error: Exception) -> None:
        """Stores the cause of a failed build that did not reject its inputs."""

    def remember_success(self, result: BuildResult) -> None:
        """Deletes the stored reason of an earlier failure."""


class Graph:
    """Determines whether outputs of a workspace are up to date, and builds outputs.

    Results are cached, so make a new graph for each run.

    Attributes:
        workspace: the store, the uploads and the settings.
        trusts_times: whether files of an upload count as unchanged if their change times precede
            the last build. If False, the files are hashed.
    """

    def __init__(self, workspace: Workspace, *, trusts_times: bool = False) -> None:
        self.workspace = workspace
        self.trusts_times = trusts_times
        self._trajectories: CommittedTrajectories | None = None
        self._states: dict[tuple[str, str], State] = {}
        self._versions: dict[str, Version | None] = {}
        self._complete: set[VersionKey] = set()
        self._fingerprints: dict[str, str] = {}
        self._suspects: set[str] | None = None
        self._damages: dict[str, list[OutputDamage]] = {}
        self._read_records = False

    # Damage

    @property
    def suspects(self) -> set[str]:
        """The ids of demonstrations that a dataset left out because an output was damaged.

        `damages` compares only the outputs of these demonstrations byte by byte, because comparing
        all outputs of a large store would take hours.
        """
        if self._suspects is None:
            self._suspects = noted_demonstrations(self.workspace)
        return self._suspects

    def damages(self, name: str) -> Sequence[OutputDamage]:
        """Returns the differences between an output and its manifest.

        Outputs of demonstrations that are not in `suspects` are assumed to be undamaged.
        """
        if name.rpartition("/")[2] not in self.suspects:
            return ()
        if name not in self._damages:
            self._damages[name] = [
                damage
                for damage in self.workspace.store.verify(name)
                if damage.code != "missing_output"
            ]
        return self._damages[name]

    def damaged_inputs_of_datasets(self) -> set[str]:
        """Returns the names of damaged outputs that datasets would read.

        Examines only demonstrations in `suspects`.
        """
        damaged = set[str]()
        for folder in RECORDS_AND_SOURCES:
            for key in self.suspects:
                if self.damages(f"{folder}/{key}"):
                    damaged.add(f"{folder}/{key}")
        return damaged

    @property
    def trajectories(self) -> CommittedTrajectories:
        """All undamaged committed trajectories, with their splits.

        Raises:
            StorageError: the store cannot be read.
        """
        if self._trajectories is None:
            damaged = self.damaged_inputs_of_datasets()
            self._trajectories = committed_trajectories(self.workspace, damaged)
        return self._trajectories

    def read_records(self) -> None:
        """Compares the tables of the stage `records` with the manifests.

        Demonstrations with a damaged table are left out. Only the first call compares, so all
        datasets of a run leave out the same demonstrations.
        """
        if self._read_records:
            return
        self._read_records = True
        for error in damaged_records(self.trajectories):
            self.leave_out(error)

    def leave_out(self, error: OutputError) -> bool:
        """Removes the demonstration of a damaged output from the committed trajectories.

        Returns False if the output belongs to no committed demonstration, or if its damage is
        already known.
        """
        key = error.output.rpartition("/")[2]
        if key not in self.trajectories.versions or self._damages.get(error.output):
            return False
        self.suspects.add(key)
        unknown = OutputDamage.for_path(error.output, "changed_file", ".", str(error))
        self._damages[error.output] = self.workspace.store.verify(error.output) or [unknown]
        self._trajectories = None
        self.forget_states()
        _LOG.warning("%s; its demonstration is left out", error)
        return True

    # Versions

    def published(self, name: str) -> Version | None:
        """Returns the published version of an output, or None if there is none."""
        if name not in self._versions:
            self._versions[name] = self.workspace.store.published(name)
        return self._versions[name]

    def required_version(self, name: str) -> Version:
        """Returns the published version of an output.

        Raises:
            MissingOutput: the version is missing or incomplete.
        """
        version = self.published(name)
        if version is None or not self._is_complete(version):
            raise MissingOutput(name)
        return version

    def _is_complete(self, version: Version) -> bool:
        """Returns whether a version has all of its files."""
        if version.key not in self._complete and self.workspace.store.is_complete(version):
            self._complete.add(version.key)
        return version.key in self._complete

    def fingerprint_of_settings(self, stage: Stage[Any]) -> str:
        """Returns a fingerprint of the settings that the outputs of a stage depend on."""
        if stage.name not in self._fingerprints:
            self._fingerprints[stage.name] = stage.fingerprint(self.workspace.settings)
        return self._fingerprints[stage.name]

    # Asking

    def state(self, output: Output[Any]) -> State:
        """Returns whether an output is up to date, and the reason if it is not. Writes nothing.

        Raises:
            StorageError: the store, or other data that the stage reads, cannot be read.
        """
        key = (output.stage.name, output.key)
        if key not in self._states:
            self._states[key] = self._find_state(output)
        return self._states[key]

    def _find_state(self, output: Output[Any]) -> State:
        published = self.published(output.name)
        if published is None:
            state: State = Absent()
        else:
            state = self._compare(output, published)
        if isinstance(state, Current):
            return state
        reason = output.refusal()
        return Refused(state.version, reason) if reason else state

    def _compare(self, output: Output[Any], published: Version) -> Current | Stale:
        """Returns whether a build would change a published version, and why."""
        inherited = set[Cause]()
        for input_output in output.inputs():
            inherited |= _inherited_causes(self.state(input_output))
        try:
            differences = self._differences(published, output.plan().recipe)
        except DemonstrationError as error:
            differences = {Cause.INPUTS: f"it cannot be read: {error.problems[0].message}"}
        except OutputError as error:
            differences = {Cause.INPUTS: str(error)}
        if not differences and not inherited:
            return Current(published)
        why = next(iter(differences.values()), AFTER_INPUTS)
        return Stale(published, frozenset(inherited | differences.keys()), why)

    def _differences(self, published: Version, recipe: Recipe) -> dict[Cause, str]:
        """Returns the reasons to build an output again, apart from stale inputs.

        Returns:
            A dictionary from each cause to a phrase that describes the change. Empty if a build
            would change nothing.
        """
        differences = recipe_differences(published.manifest.recipe, recipe)
        if not self._is_complete(published):
            differences[Cause.FILES] = "a file is missing"
        elif self.damages(published.output):
            differences[Cause.FILES] = DAMAGED
        return differences

    # Building

    @reduced_python_gc()
    def build(self, output: Output[Any], *, force: bool = False) -> BuildResult:
        """Builds an output from its committed inputs, unless it is up to date.

        All errors of builds are classified here.

        Args:
            force: whether to build the output even if it is up to date.

        Raises:
            RefusedError: the build failed because of its inputs. The reason is stored.
            UnusableInputError: an input is missing or damaged; the message names the command that
                rebuilds it.
            TransientError: a temporary problem such as a full disk.
            DefectError: this package is at fault.
        """
        self.forget_states()
        try:
            with redacted_errors(output.stage.name, output.key):
                return self._build_or_refuse(output, force=force)
        except OutputError as error:
            self._remember_failure(output, error)
            raise UnusableInputError(unusable_output(error, output.key)) from None
        except (TransientError, DefectError) as error:
            self._remember_failure(output, error)
            raise
        finally:
            self.forget_states()

    def forget_states(self) -> None:
        """Clears the cached states and versions, after a build or to save memory."""
        self._states.clear()
        self._versions.clear()

    def _remember_failure(self, output: Output[Any], error: Exception) -> None:
        with best_effort(_LOG, "noting a failure"):
            output.remember_failure(error)

    def _build_or_refuse(self, output: Output[Any], *, force: bool) -> BuildResult:
        try:
            output.prepare()
            result = self._build_with_retries(output, force=force)
        except UnusableInputError:
            raise
        except DemonstrationError as error:
            checks = error.checks if isinstance(error, RefusedError) else ()
            refused = RefusedError(_with_demonstration(error.problems, output.key), checks)
            output.remember_refusal(refused)
            raise refused from None
        output.remember_success(result)
        return result

    def _build_with_retries(self, output: Output[Any], *, force: bool) -> BuildResult:
        while True:
            try:
                return self._blame_damage_first(output, force=force)
            except (DemonstrationError, OutputError) as error:
                if not output.can_retry(error):
                    raise

    def _blame_damage_first(self, output: Output[Any], *, force: bool) -> BuildResult:
        """Attempts to build an output. If this fails, checks whether an input is damaged.

        Transient errors are raised again without this check.

        Raises:
            ChangedOutput: an input is damaged.
        """
        try:
            return self._build_once(output, force=force)
        except OutputError:
            raise
        except Exception as error:  # a damaged input can cause any error in a stage
            if transient_reason(error) is None:
                self._require_undamaged_inputs(output)
            raise

    def _require_undamaged_inputs(self, output: Output[Any]) -> None:
        for name in output.names_of_inputs():
            for damage in self.workspace.store.verify(name):
                raise damage.as_error()

    def _build_once(self, output: Output[Any], *, force: bool) -> BuildResult:
        """Builds, checks and commits an output. If a step fails, nothing is published."""
        store = self.workspace.store
        stage = output.stage
        plan = output.plan()
        name = output.name
        published = self.published(name)
        reason = Absent.why
        if published is not None:
            differences = self._differences(published, plan.recipe)
            if not differences and not force:
                plan.require_same_inputs()
                _LOG.info("%s: %s is unchanged", stage.name, name)
                return BuildResult.of(published, Status.CACHED)
            reason = next(iter(differences.values()), "it was forced")
        _LOG.debug("%s: building %s, because %s", stage.name, name, reason)
        started = time.monotonic()
        with store.stage(name) as staging:
            with plan.open_inputs(staging) as inputs:
                note_settings(self.workspace, stage)
                summary = plan.complete_summary(stage.build(inputs, staging.path))
                checks = run_checks(stage, inputs, staging.path, output.key)
            require_passed(checks)
            plan.require_same_inputs()
            version = store.commit(staging, plan.recipe, summary, checks)
        self._complete.add(version.key)
        self._damages.pop(name, None)
        seconds = time.monotonic() - started
        # Only one line is logged, because Dagster stores each line as an event.
        message = "%s: %s made in %.1f s: %s; because %s"
        _LOG.info(message, stage.name, name, seconds, _counts(summary), reason)
        return BuildResult.of(version, Status.BUILT)


def _inherited_causes(state: State) -> frozenset[Cause]:
    """Returns the causes that make an output stale if one of its inputs has this state."""
    match state:
        case Current():
            return frozenset()
        case Stale():
            return state.causes
        case Refused() | Absent():
            return frozenset({Cause.INPUTS})


def recipe_differences(before: Recipe, now: Recipe) -> dict[Cause, str]:
    """Returns the differences between two recipes.

    Returns:
        A dictionary from each cause to a phrase that describes the change. Empty if the recipes
        are equal.
    """
    differences: dict[Cause, str] = {}
    if before.code_version != now.code_version:
        why = f"the code version was {before.code_version} and is {now.code_version}"
        differences[Cause.CODE] = why
    if before.settings != now.settings:
        differences[Cause.SETTINGS] = SETTINGS_CHANGED
    for name in sorted({*before.inputs, *now.inputs}):
        if before.inputs.get(name) == now.inputs.get(name):
            continue
        # The recipe of the stage `records` has, for each of its files `<export>.jsonl`, a
        # fingerprint of the settings and the code that write the file.
        if name.endswith(".jsonl"):
            why = f"the settings or the code version of {name} changed"
            differences.setdefault(Cause.SETTINGS, why)
        else:
            differences.setdefault(Cause.INPUTS, f"{name} changed")
    return differences


def run_checks(
    stage: Stage[AnyInputs], inputs: AnyInputs, folder: Path, demonstration: str
) -> list[CheckOutcome]:
    """Runs the checks of a stage on a staged folder, up to the first blocking check that fails."""
    outcomes: list[CheckOutcome] = []
    for check in stage.checks:
        try:
            problems = check.run(inputs, folder)
        except DemonstrationError as error:
            problems = error.problems
        passed = not errors(problems)
        named_problems = _with_demonstration(problems, demonstration)
        outcomes.append(CheckOutcome(check.name, passed, named_problems, blocking=check.blocking))
        _LOG.debug("%s: %d problems", check.name, len(problems))
        if check.blocking and not passed:
            break
    return outcomes


def require_passed(outcomes: Sequence[CheckOutcome]) -> None:
    """Raises `RefusedError`, with all outcomes, if a blocking check failed."""
    for outcome in outcomes:
        if outcome.blocking and not outcome.passed:
            raise RefusedError(outcome.problems, outcomes)


def _with_demonstration(problems: Sequence[Problem], demonstration: str) -> tuple[Problem, ...]:
    """Adds the id of a demonstration to all problems that name no demonstration."""
    return tuple(
        replace(problem, demonstration=problem.demonstration or demonstration)
        for problem in problems
    )


def _counts(summary: Mapping[str, Any]) -> str:
    """Returns the counts in a summary as text, such as `15 actions, 2 pauses, 60 records`."""
    numbers = {name: value for name, value in summary.items() if type(value) is int}
    records = summary.get("records")
    if isinstance(records, Mapping):
        numbers["records"] = sum(value for value in records.values() if isinstance(value, int))
    return ", ".join(f"{value} {name}" for name, value in numbers.items()) or "no counts"
