"""Running one stage of one demonstration: its inputs, its output, its checks, its quarantine.

Belongs here: the wiring between store and pure code, once, for the orchestrator and the command
line alike. Not here: which stages there are (chain.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from demo_pipeline import __version__
from demo_pipeline.chain import BY_NAME, STAGES
from demo_pipeline.datasets.osworld_links import NO_CATALOG
from demo_pipeline.osworld import OSWORLD_TASKS, link_of
from demo_pipeline.pipeline import Check, Pipeline, Stage, Summary, Work
from demo_pipeline.problems import DemonstrationError, Problem, errors
from demo_pipeline.recording import manifest
from demo_pipeline.storage.making import CheckOutcome, Made, Recipe, make
from demo_pipeline.storage.quarantine import (
    QuarantineRecord,
    problem_dicts,
    read_quarantine,
    release,
    write_quarantine,
)
from demo_pipeline.storage.store import MissingOutput, Staging

__all__ = [
    "BY_NAME",
    "STAGES",
    "Check",
    "Pipeline",
    "Stage",
    "Summary",
    "Work",
    "is_held",
    "is_up_to_date",
    "run_stage",
]


def run_stage(pipeline: Pipeline, stage: Stage, demonstration: str, *, force: bool = False) -> Made:
    """Make one stage's output of one demonstration, unless it is up to date.

    A demonstration that cannot go on is quarantined; one that can is released.

    Raises:
        DemonstrationError: why it cannot go on.
        MissingOutput: an input has not been made.
    """
    try:
        made = _make(pipeline, stage, demonstration, force=force)
    except DemonstrationError as error:
        _quarantine(pipeline, stage, demonstration, error.problems)
        raise
    if made.status == "rejected":
        failed = [p for c in made.checks if c.blocking for p in c.problems if not c.passed]
        _quarantine(pipeline, stage, demonstration, failed)
        return made
    record = read_quarantine(pipeline.store, demonstration)
    if record is not None and record.stage == stage.name:
        release(pipeline.store, demonstration)
    return made


def _make(pipeline: Pipeline, stage: Stage, demonstration: str, *, force: bool) -> Made:
    with _opened(pipeline, stage, demonstration) as (work, inputs):
        recipe = _recipe(pipeline, stage, inputs)

        def build(staging: Staging) -> Summary:
            return stage.build(work, staging.path)

        def check(out: Path) -> list[CheckOutcome]:
            return [_outcome(one, work, out) for one in stage.checks]

        output = stage.output(demonstration)
        return make(pipeline.store, output, recipe, build, check, force=force)


@contextmanager
def _opened(
    pipeline: Pipeline, stage: Stage, demonstration: str
) -> Iterator[tuple[Work, dict[str, str]]]:
    """The stage's inputs as local folders, and their content fingerprints."""
    folders: dict[str, Path] = {}
    inputs: dict[str, str] = {}
    with ExitStack() as stack:
        for name in stage.inputs:
            output = BY_NAME[name].output(demonstration)
            folders[name], version = stack.enter_context(pipeline.store.open(output))
            inputs[name] = version.content
        upload, name = Path(), demonstration
        if stage.uploads:
            upload = stack.enter_context(pipeline.uploads.open(demonstration))
            found = pipeline.uploads.find(demonstration)
            name = found.name if found else demonstration
        recording = None
        if "raw_recordings" in folders:
            recording = manifest.read_manifest(folders["raw_recordings"])
        else:
            inputs["upload"] = manifest.upload_fingerprint(upload)
        link = NO_CATALOG
        if stage.linked and recording is not None:
            # Its own link alone: another task in the catalog remakes no trajectory.
            link = link_of(pipeline, recording)
            inputs[OSWORLD_TASKS] = link.fingerprint
        yield Work(demonstration, name, upload, recording, folders, pipeline.settings, link), inputs


def _recipe(pipeline: Pipeline, stage: Stage, inputs: Mapping[str, str]) -> Recipe:
    section = stage.section(pipeline.settings)
    return Recipe(stage.name, stage.code_version, section.fingerprint(), dict(inputs))


def _outcome(check: Check, work: Work, out: Path) -> CheckOutcome:
    try:
        problems = list(check.run(work, out))
    except DemonstrationError as error:
        problems = list(error.problems)
    named = tuple(replace(p, demonstration=p.demonstration or work.demonstration) for p in problems)
    return CheckOutcome(check.name, not errors(named), named, blocking=check.blocking)


def _quarantine(
    pipeline: Pipeline, stage: Stage, demonstration: str, problems: Sequence[Problem]
) -> None:
    named = [replace(p, demonstration=p.demonstration or demonstration) for p in problems]
    record = QuarantineRecord(
        demonstration=demonstration,
        stage=stage.name,
        fingerprint=_uploaded(pipeline, demonstration),
        tool_version=__version__,
        problems=problem_dicts(named),
    )
    write_quarantine(pipeline.store, record)


def _uploaded(pipeline: Pipeline, demonstration: str) -> str | None:
    """Fingerprint of what lies in the uploads root now; None when it cannot be read."""
    try:
        with pipeline.uploads.open(demonstration) as folder:
            return manifest.upload_fingerprint(folder)
    except (DemonstrationError, OSError):
        return None


def is_held(pipeline: Pipeline, demonstration: str) -> bool:
    """Whether it is quarantined for the very files that lie there now, by this version."""
    record = read_quarantine(pipeline.store, demonstration)
    if record is None or record.tool_version != __version__:
        return False
    return record.fingerprint == _uploaded(pipeline, demonstration)


def is_up_to_date(pipeline: Pipeline, demonstration: str) -> bool:
    """Whether every stage's output was made from what lies there now, by this code."""
    try:
        for stage in STAGES:
            current = pipeline.store.current(stage.output(demonstration))
            if current is None:
                return False
            with _opened(pipeline, stage, demonstration) as (_, inputs):
                if current.manifest.recipe != _recipe(pipeline, stage, inputs):
                    return False
    except (DemonstrationError, MissingOutput):
        return False
    return True
