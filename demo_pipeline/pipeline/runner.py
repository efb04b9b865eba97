"""Running one stage of one demonstration: its inputs, its output, its checks, its quarantine.

Belongs here: the wiring between store and pure code, once, for the orchestrator and the command
line alike. Not here: which stages there are (chain.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from demo_pipeline import __version__
from demo_pipeline.datasets.task_matching import NO_CATALOG, TaskMatch
from demo_pipeline.pipeline.build_if_stale import BuildResult, build_if_stale
from demo_pipeline.pipeline.context import Check, Stage, StageContext, Summary, Workspace
from demo_pipeline.pipeline.demonstration_stages import STAGE_BY_NAME, STAGES
from demo_pipeline.pipeline.quarantine import quarantine, read_quarantine, release
from demo_pipeline.pipeline.superseded import (
    ExpectedUpload,
    never_as_listed,
    says_changed,
)
from demo_pipeline.pipeline.task_catalog import OSWORLD_TASKS, link_of
from demo_pipeline.problems import DemonstrationError, Problem, errors
from demo_pipeline.recording import manifest
from demo_pipeline.storage.errors import MissingOutput
from demo_pipeline.storage.store.staging import Staging
from demo_pipeline.storage.store.version_manifest import CheckOutcome, Recipe, Version
from demo_pipeline.storage.uploads.upload_listing import changed_while_read


def run_stage(
    pipeline: Workspace,
    stage: Stage,
    demonstration: str,
    *,
    force: bool = False,
    listed: str | None = None,
) -> BuildResult:
    """Make one stage's output of one demonstration, unless it is up to date.

    A demonstration that cannot go on is quarantined; one that can is released.

    Args:
        pipeline: roots and settings.
        stage: which.
        demonstration: its id.
        force: make it again though nothing changed.
        listed: listing fingerprint (storage/fingerprint.py) of the upload that is meant; None:
            whichever lies there at the beginning of the first stage.

    Raises:
        DemonstrationError: why it cannot go on.
        MissingOutput: an input has not been made.
        SupersededError: another upload lies there than `listed`, or it changed meanwhile; nobody
            is quarantined for that, and the first stage commits nothing of it.
    """
    first = not stage.inputs
    meant = ExpectedUpload.by(pipeline.uploads, demonstration, stage.name, listed, first=first)
    try:
        made = _made(pipeline, stage, meant, force=force)
    except DemonstrationError as error:
        _give_up(pipeline, stage, meant, error.problems)
        raise
    if made.status == "rejected":
        failed = [p for c in made.checks if c.blocking for p in c.problems if not c.passed]
        _give_up(pipeline, stage, meant, failed)
        return made
    if first and made.status == "unchanged":  # what is made was asked about before its commit
        meant.require()
    _release(pipeline, stage, demonstration)
    return made


def _release(pipeline: Workspace, stage: Stage, demonstration: str) -> None:
    """Lift the quarantine that this stage, or none that there is, had put on it."""
    record = read_quarantine(pipeline.store, demonstration)
    if record is None:
        return
    foreign = record.stage not in STAGE_BY_NAME and not stage.inputs
    if foreign or record.stage == stage.name:
        release(pipeline.store, demonstration)


def _made(pipeline: Workspace, stage: Stage, meant: ExpectedUpload, *, force: bool) -> BuildResult:
    """Make it, the first stage once more when a reader met another upload than is still listed."""
    try:
        return _make(pipeline, stage, meant, force=force)
    except DemonstrationError as error:
        if stage.inputs or not says_changed(error.problems):
            raise
    meant.require()
    try:
        return _make(pipeline, stage, meant, force=force)
    except DemonstrationError as error:
        raise DemonstrationError(never_as_listed(error.problems)) from None


def _make(pipeline: Workspace, stage: Stage, meant: ExpectedUpload, *, force: bool) -> BuildResult:
    with _opened(pipeline, stage, meant.demonstration) as (work, inputs, versions):
        recipe = _recipe(pipeline, stage, inputs)

        def build(staging: Staging) -> Summary:
            staging.hardlink_sources.extend(versions)
            with _downloaded(pipeline, stage, work, inputs) as ready:
                return stage.build(ready, staging.path)

        def check(out: Path) -> list[CheckOutcome]:
            outcomes = [_outcome(one, work, out) for one in stage.checks]
            if not stage.inputs:  # the last moment before its commit
                meant.require()
            return outcomes

        output = stage.output(meant.demonstration)
        return build_if_stale(pipeline.store, output, recipe, build, check, force=force)


@contextmanager
def _opened(
    pipeline: Workspace, stage: Stage, demonstration: str
) -> Iterator[tuple[StageContext, dict[str, str], list[Version]]]:
    """The stage's inputs as local folders, what its recipe says of them, and their versions."""
    folders: dict[str, Path] = {}
    versions: dict[str, Version] = {}
    copies = pipeline.uploads.copies
    with ExitStack() as stack:
        for name in stage.inputs:
            output = STAGE_BY_NAME[name].output(demonstration)
            folders[name], versions[name] = stack.enter_context(pipeline.store.open(output))
        upload, name = folders.get("raw_recordings", Path()) if copies else Path(), demonstration
        if stage.uploads and not copies:
            upload = stack.enter_context(pipeline.uploads.open(demonstration))
        if not stage.inputs:
            found = pipeline.uploads.find(demonstration)
            name = found.name if found else demonstration
        recording = None
        if "raw_recordings" in folders:
            recording = manifest.read_manifest(folders["raw_recordings"])
        link = link_of(pipeline, recording) if stage.linked and recording else NO_CATALOG
        work = StageContext(
            demonstration, name, upload, recording, folders, pipeline.settings, link, copies
        )
        yield work, _inputs(pipeline, stage, demonstration, versions, link), [*versions.values()]


@contextmanager
def _downloaded(
    pipeline: Workspace, stage: Stage, work: StageContext, inputs: Mapping[str, str]
) -> Iterator[StageContext]:
    """The work with the uploaded files at hand; only the first stage ever waits for them."""
    if stage.inputs or not pipeline.uploads.copies:
        yield work
        return
    with pipeline.uploads.open(work.demonstration, inputs["upload"]) as folder:
        yield replace(work, upload=folder)


def _inputs(
    pipeline: Workspace,
    stage: Stage,
    demonstration: str,
    versions: Mapping[str, Version],
    link: TaskMatch,
) -> dict[str, str]:
    """What a recipe says of the stage's inputs, the upload and the task it is of."""
    inputs = {name: versions[name].content for name in stage.inputs}
    if not stage.inputs:
        inputs["upload"] = _identity(pipeline, demonstration)
    if stage.linked:
        # Its own link alone: another task in the catalog remakes no trajectory.
        inputs[OSWORLD_TASKS] = link.fingerprint
    return inputs


def _identity(pipeline: Workspace, demonstration: str) -> str:
    identity = pipeline.uploads.identity(demonstration)
    if identity is None:
        with pipeline.uploads.open(demonstration):  # says why it cannot be read
            raise DemonstrationError(changed_while_read(demonstration, "."))
    return identity


def _recipe(pipeline: Workspace, stage: Stage, inputs: Mapping[str, str]) -> Recipe:
    section = stage.section(pipeline.settings)
    return Recipe(stage.name, stage.code_version, section.fingerprint(), dict(inputs))


def _outcome(check: Check, work: StageContext, out: Path) -> CheckOutcome:
    try:
        problems = list(check.run(work, out))
    except DemonstrationError as error:
        problems = list(error.problems)
    named = tuple(replace(p, demonstration=p.demonstration or work.demonstration) for p in problems)
    return CheckOutcome(check.name, not errors(named), named, blocking=check.blocking)


def _give_up(
    pipeline: Workspace, stage: Stage, meant: ExpectedUpload, problems: Sequence[Problem]
) -> None:
    """Quarantine the demonstration, unless its upload changed while it was read."""
    meant.require()
    demonstration = meant.demonstration
    named = [replace(p, demonstration=p.demonstration or demonstration) for p in problems]
    uploaded = pipeline.uploads.identity(demonstration)
    quarantine(pipeline.store, demonstration, stage.name, uploaded, __version__, problems=named)


def is_quarantined(pipeline: Workspace, demonstration: str) -> bool:
    """Whether it is quarantined for the very files that lie there now, by this version."""
    record = read_quarantine(pipeline.store, demonstration)
    if record is None or record.tool_version != __version__:
        return False
    return record.fingerprint == pipeline.uploads.identity(demonstration)


def is_outdated(pipeline: Workspace, demonstration: str) -> bool:
    """Whether what was made of the very files that lie there is not what would be made now."""
    first = pipeline.store.current(STAGES[0].output(demonstration))
    if first is None:
        return False
    same = first.manifest.recipe.inputs["upload"] == pipeline.uploads.identity(demonstration)
    return same and not is_up_to_date(pipeline, demonstration)


def is_up_to_date(pipeline: Workspace, demonstration: str) -> bool:
    """Whether every stage's output was made from what lies there now, by this code.

    Nothing of the upload is read that `Uploads.identity` does not read.
    """
    versions: dict[str, Version] = {}
    try:
        for stage in STAGES:
            current = pipeline.store.current(stage.output(demonstration))
            if current is None:
                return False
            versions[stage.name] = current
            link = _link(pipeline, demonstration) if stage.linked else NO_CATALOG
            inputs = _inputs(pipeline, stage, demonstration, versions, link)
            if current.manifest.recipe != _recipe(pipeline, stage, inputs):
                return False
    except (DemonstrationError, MissingOutput):
        return False
    return True


def _link(pipeline: Workspace, demonstration: str) -> TaskMatch:
    with pipeline.store.open(STAGE_BY_NAME["raw_recordings"].output(demonstration)) as (folder, _):
        return link_of(pipeline, manifest.read_manifest(folder))
