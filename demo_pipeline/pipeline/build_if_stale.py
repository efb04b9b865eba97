"""Making an output: not again when nothing changed, not at all when a check fails.

Belongs here: the one order of things that every stage follows. What is made and what is checked
is the caller's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from demo_pipeline.storage.store.staging import Staging
from demo_pipeline.storage.store.store import Store
from demo_pipeline.storage.store.version_manifest import CheckOutcome, Recipe, Version


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What came of making an output.

    Attributes:
        output: its name.
        status: `made`: committed now; `unchanged`: the current version has this recipe already;
            `rejected`: a blocking check failed, and readers see what they saw before.
        version: the current version; None when rejected.
        summary: what the stage said about it.
        checks: what the checks said about it.
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
) -> BuildResult:
    """Build, check and commit `output`, unless its current version has the same recipe.

    Args:
        store: where it goes.
        output: its name.
        recipe: all it depends on.
        build: writes the files under `Staging.path` and returns a JSON object about them.
        check: reads the files back from the path it is given.
        force: build even when nothing changed.

    Raises:
        DemonstrationError: what `build` or `check` raises passes through; nothing is committed.
    """
    current = store.current(output)
    if current and not force and current.manifest.recipe == recipe:
        return _seen(output, "unchanged", current)
    with store.stage(output) as staging:
        summary = build(staging)
        checks = tuple(check(staging.path))
        if any(outcome.blocking and not outcome.passed for outcome in checks):
            return BuildResult(output, "rejected", None, summary, checks)
        return _seen(output, "made", store.commit(staging, recipe, summary, checks))


def _seen(output: str, status: Literal["made", "unchanged"], version: Version) -> BuildResult:
    return BuildResult(output, status, version, version.manifest.summary, version.manifest.checks)
