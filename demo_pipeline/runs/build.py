"""Building one output: only when it is stale, and publishing it only when its checks pass.

Belongs here: the order of steps that every stage follows. What is built and checked is the
caller's. The values of settings are noted once in `settings/<fingerprint>.json`, so that versions,
whose manifests hold fingerprints only, can be told apart by name.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from demo_pipeline.files.processes import reduced_python_gc
from demo_pipeline.files.system_errors import best_effort
from demo_pipeline.runs.results import BuildResult, Status
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Section, Settings
from demo_pipeline.stage import Stage
from demo_pipeline.store.documents import DamagedDocument, sealed, unsealed
from demo_pipeline.store.store import Store
from demo_pipeline.store.versions import CheckOutcome, Recipe, Staging, Version

SETTINGS_CHANGED = "its settings changed"
_LOG = logging.getLogger(__package__)


@reduced_python_gc()
def build_if_stale(
    store: Store,
    output: str,
    recipe: Recipe,
    build: Callable[[Staging], Mapping[str, JsonValue]],
    check: Callable[[Path], Sequence[CheckOutcome]],
    *,
    force: bool,
) -> BuildResult:
    """Build, check and commit `output`, unless its current version has this recipe and is complete.

    `build` writes files under `Staging.path` and returns a JSON object about them, which `check`
    reads back.

    Raises:
        ChangedOutput: `output` shares a damaged file with another.
        DemonstrationError: raised by `build` or `check`; nothing is committed.
    """
    current = store.published(output)
    same = current is not None and not force and current.manifest.recipe == recipe
    if current and same and store.is_complete(current):
        _LOG.info("%s: %s is unchanged", recipe.stage, output)
        return _current(output, Status.CACHED, current)
    reason = "it is not complete" if same else rebuild_reason(current, recipe)
    _LOG.debug("%s: building %s, because %s", recipe.stage, output, reason)
    start = time.monotonic()
    with store.stage(output) as staging:
        summary = build(staging)
        checks = tuple(check(staging.path))
        for one in checks:
            verdict = "passed" if one.passed else "failed"
            _LOG.debug("%s: %s, %d problems", one.name, verdict, len(one.problems))
        failed = next((one.name for one in checks if one.blocking and not one.passed), None)
        version = None if failed else store.commit(staging, recipe, summary, checks)
    seconds = time.monotonic() - start
    if version is None:
        _LOG.info("%s: %s rejected by %s after %.1f s", recipe.stage, output, failed, seconds)
        return BuildResult(recipe.stage, output, Status.REJECTED, None, summary, checks)
    words = recipe.stage, output, seconds, _counts(summary), reason
    _LOG.info("%s: %s made in %.1f s: %s; because %s", *words)  # each line is an event of Dagster
    return _current(output, Status.BUILT, version)


def rebuild_reason(current: Version | None, recipe: Recipe) -> str:
    """Why an output is built again, in terms of its recipe."""
    if current is None:
        return "there is no version"
    before = current.manifest.recipe
    if before.code_version != recipe.code_version:
        return f"the code version was {before.code_version} and is {recipe.code_version}"
    if before.settings != recipe.settings:
        return SETTINGS_CHANGED
    names = sorted({*before.inputs, *recipe.inputs})
    changed = [name for name in names if before.inputs.get(name) != recipe.inputs.get(name)]
    if changed and changed[0].endswith(".jsonl"):  # a form of `records`
        return f"the settings or the code version of {changed[0]} changed"
    return f"{changed[0]} changed" if changed else "it was forced"


def _counts(summary: Mapping[str, JsonValue]) -> str:
    """The whole numbers of a summary, `15 actions, 2 pauses`, and the sum of its records."""
    numbers = {name: value for name, value in summary.items() if type(value) is int}
    records = summary.get("records")
    if isinstance(records, Mapping):
        numbers["records"] = sum(value for value in records.values() if isinstance(value, int))
    return ", ".join(f"{value} {name}" for name, value in numbers.items()) or "no counts"


def _current(output: str, status: Status, version: Version) -> BuildResult:
    made = version.manifest
    return BuildResult(
        made.recipe.stage,
        output,
        status,
        version.name,
        made.summary,
        made.checks,
        len(made.files),
        made.size,
    )


_FOLDER = "settings"
_noted: set[tuple[str, str]] = set()  # (store, fingerprint) that this process has written
Values = Mapping[str, Any]
"""`section.name` → value."""


def note_settings(workspace: Workspace, stage: Stage[Any]) -> None:
    """Keep the values that an output depends on which is about to be built."""
    if stage.section:
        section = stage.section(workspace.settings)
        known = (workspace.store.url, section.fingerprint())
        if known not in _noted:
            data = sealed(section_values(workspace.settings, section))
            with best_effort(_LOG, "noting settings"):  # a bucket may allow older names only
                workspace.store.add_document(f"{_FOLDER}/{known[1]}.json", data)
            _noted.add(known)


def section_values(settings: Settings, section: Section) -> Values:
    """The values that a section's fingerprint is of."""
    name = next((name for name, value in settings if value is section), "")
    values = section.model_dump(mode="json", exclude=set(section.UNHASHED))
    return {f"{name}.{key}": value for key, value in values.items()}


def noted_settings(store: Store, fingerprint: str) -> Values | None:
    """The values with this fingerprint; None when no build has noted them."""
    data = store.get_document(f"{_FOLDER}/{fingerprint}.json")
    try:
        return unsealed(data, f"{_FOLDER}/{fingerprint}.json") if data else None
    except DamagedDocument:  # `revalidate` names it
        return None


def setting_changes(before: Values, after: Values) -> Iterator[str]:
    """A sentence for each setting that differs."""
    for name in sorted({*before, *after}):
        old, new = (json.dumps(side.get(name), ensure_ascii=False) for side in (before, after))
        if old != new:
            yield f"setting {name}: {old} → {new}"
