"""Building one output: only when it is stale, and publishing it only when its checks pass.

Belongs here: the order of steps that every stage follows. What is built and checked is the
caller's.
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
    """The result of building an output.

    Attributes:
        output: its name in the store.
        status: `made`: built and committed; `unchanged`: the current version has this recipe;
            `rejected`: a blocking check failed, and readers still see the version before.
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
) -> BuildResult:
    """Build, check and commit `output`, unless its current version has the same recipe.

    Args:
        store: gets the output.
        output: its name in the store.
        recipe: everything it depends on.
        build: writes the files under `Staging.path` and returns a JSON object about them.
        check: reads the files back from a folder.
        force: build although nothing changed.

    Raises:
        DemonstrationError: raised by `build` or `check`; nothing is committed.
    """
    current = store.current(output)
    same = current is not None and not force and current.manifest.recipe == recipe
    if current and same and store.is_complete(current):
        return _current(output, "unchanged", current)
    with store.stage(output) as staging:
        summary = build(staging)
        checks = tuple(check(staging.path))
        if any(outcome.blocking and not outcome.passed for outcome in checks):
            return BuildResult(output, "rejected", None, summary, checks)
        return _current(output, "made", store.commit(staging, recipe, summary, checks))


def _current(output: str, status: Literal["made", "unchanged"], version: Version) -> BuildResult:
    return BuildResult(output, status, version, version.manifest.summary, version.manifest.checks)
