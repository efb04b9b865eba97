"""Building one output: only when it is stale, and publishing it only when its checks pass.

Belongs here: the order of steps that every stage follows. What is built and checked is the
caller's.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from demo_pipeline.storage.store.integrity import OutputDamage
from demo_pipeline.storage.store.staging import Staging
from demo_pipeline.storage.store.store import Store
from demo_pipeline.storage.store.version_manifest import CheckOutcome, Recipe, Version

_LOG = logging.getLogger(__package__)


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The result of building an output.

    Attributes:
        output: its name in the store.
        status: `made`: built and committed; `unchanged`: the current version has this recipe, and
            its files the SHA-256 of its manifest; `rejected`: a blocking check failed, and readers
            still see the version before.
        version: the current version; None when rejected.
        summary: what the build function returned.
        checks: the outcome of every check.
    """

    output: str
    status: Literal["made", "unchanged", "rejected"]
    version: Version | None
    summary: Mapping[str, JsonValue]
    checks: tuple[CheckOutcome, ...]


def build_if_stale(
    store: Store,
    output: str,
    recipe: Recipe,
    build: Callable[[Staging], Mapping[str, JsonValue]],
    check: Callable[[Path], Sequence[CheckOutcome]],
    *,
    force: bool = False,
    reuse_links: bool = False,
    mend: Callable[[], None] = lambda: None,
) -> BuildResult:
    """Build, check and commit `output`, unless its current version has this recipe and its bytes.

    Args:
        store: gets the output.
        output: its name in the store.
        recipe: everything it depends on.
        build: writes the files under `Staging.path` and returns a JSON object about them.
        check: reads the files back from a folder.
        force: build although nothing changed.
        reuse_links: hard links that the current version has under the same path are not read again.
        mend: called before a damaged version is built again: its inputs may be damaged, too.

    Raises:
        ChangedOutput: `output` links to a damaged version, or shares a damaged file with another.
        DemonstrationError: by `build` or `check`; nothing is committed.
    """
    current = store.published(output)
    same = None if force else _same(store, current, recipe)
    damage = _damage(store, output) if same else None
    if same and not damage:
        _LOG.info("%s: %s is unchanged", recipe.stage, output)
        return _current(output, "unchanged", same)
    start, reason = time.monotonic(), _reason(current, recipe, damage)
    _LOG.info("%s: building %s, because %s", recipe.stage, output, reason)
    if damage:
        mend()
    with store.stage(output) as staging:
        if current and reuse_links and damage is None:
            staging.previous.append(current)
        summary = build(staging)
        checks = tuple(check(staging.path))
        if _is_rejected(recipe, output, checks):
            return BuildResult(output, "rejected", None, summary, checks)
        version = store.commit(staging, recipe, summary, checks)
    if damage and (left := _damage(store, output)):
        raise left.as_error()
    made = (recipe.stage, output, time.monotonic() - start, _counts(summary))
    _LOG.info("%s: %s made in %.1f s: %s", *made)
    return _current(output, "made", version)


def _same(store: Store, current: Version | None, recipe: Recipe) -> Version | None:
    """The current version, if it has this recipe and all its files."""
    if current is None or current.manifest.recipe != recipe:
        return None
    return current if store.is_complete(current) else None


def _damage(store: Store, output: str) -> OutputDamage | None:
    """The first difference between the current version and its manifest.

    Raises:
        ChangedOutput: a version that it links to is damaged.
    """
    damages = store.verify(output)
    for damage in damages:
        if damage.output != output:
            raise damage.as_error()
    return next(iter(damages), None)


def _is_rejected(recipe: Recipe, output: str, checks: Sequence[CheckOutcome]) -> bool:
    """Whether a check prevents the commit."""
    for outcome in checks:
        verdict = "passed" if outcome.passed else "failed"
        _LOG.debug("%s: %s, %d problems", outcome.name, verdict, len(outcome.problems))
    failed = [outcome.name for outcome in checks if outcome.blocking and not outcome.passed]
    if failed:
        _LOG.info("%s: %s rejected by %s", recipe.stage, output, failed[0])
    return bool(failed)


def _reason(current: Version | None, recipe: Recipe, damage: OutputDamage | None) -> str:
    """Why an output is built again, in terms of its recipe."""
    if damage:
        return f"{damage.file} {damage.message}"
    if current is None:
        return "there is no version"
    before = current.manifest.recipe
    if before.code_version != recipe.code_version:
        return f"the code version was {before.code_version} and is {recipe.code_version}"
    if before.settings != recipe.settings:
        return "its settings changed"
    names = sorted({*before.inputs, *recipe.inputs})
    changed = [name for name in names if before.inputs.get(name) != recipe.inputs.get(name)]
    return f"{changed[0]} changed" if changed else "it was forced"


def _counts(summary: Mapping[str, JsonValue]) -> str:
    """The whole numbers of a summary, `15 actions, 2 pauses`, and the sum of its records."""
    numbers = {name: value for name, value in summary.items() if type(value) is int}
    records = summary.get("records")
    if isinstance(records, Mapping):
        numbers["records"] = sum(value for value in records.values() if isinstance(value, int))
    return ", ".join(f"{value} {name}" for name, value in numbers.items()) or "no counts"


def _current(output: str, status: Literal["made", "unchanged"], version: Version) -> BuildResult:
    return BuildResult(output, status, version, version.manifest.summary, version.manifest.checks)
