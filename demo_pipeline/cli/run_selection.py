"""Which demonstrations a run processes.

Belongs here: what was named, what changed, and what is left in quarantine.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from demo_pipeline.cli.console import print_error
from demo_pipeline.cli.environment import USAGE

if TYPE_CHECKING:
    from demo_pipeline.pipeline.context import Workspace

_LOG = logging.getLogger(__package__)


@dataclass(frozen=True)
class RunSelection:
    """The ids that a run processes, those still in quarantine, and how many are up to date."""

    todo: list[str]
    quarantined: list[str]
    up_to_date: int


def uploaded_ids(workspace: "Workspace") -> list[str]:
    """The ids of all demonstrations in the uploads root."""
    return [upload.id for upload in workspace.uploads.list_demonstrations()]


def print_hidden(workspace: "Workspace") -> None:
    """Say which folders of the uploads look like recordings and are skipped for their names."""
    from demo_pipeline.pipeline.incomplete_uploads import hidden_uploads

    if names := hidden_uploads(workspace):
        print_error(
            f"skipped: {', '.join(names)} in {workspace.uploads.url}: names that begin with a dot "
            "are hidden; rename a folder to have it processed"
        )


def require_known(workspace: "Workspace", ids: Sequence[str], known: Sequence[str]) -> None:
    """End the command when an id is not in the uploads root."""
    unknown = [key for key in ids if key not in known]
    if unknown:
        print_error(f"no recording {', '.join(unknown)} in {workspace.uploads.url}")
        raise typer.Exit(USAGE)


def select_demonstrations(
    workspace: "Workspace",
    ids: Sequence[str] | None,
    known: Sequence[str],
    *,
    forced: Collection[str],
    retry: bool,
) -> RunSelection:
    """Choose among all uploads.

    Args:
        workspace: the roots.
        ids: those that were named; None: all.
        known: ids in the uploads root.
        forced: to be built again though nothing changed.
        retry: process those in quarantine too.
    """
    from demo_pipeline.pipeline.quarantine import is_quarantined
    from demo_pipeline.pipeline.staleness import is_up_to_date

    chosen = list(dict.fromkeys(ids or known))
    stale = [key for key in chosen if key in forced or not _holds(is_up_to_date, workspace, key)]
    skip = not (retry or ids)
    quarantined = [
        key
        for key in stale
        if skip and key not in forced and _holds(is_quarantined, workspace, key)
    ]
    todo = [key for key in stale if key not in quarantined]
    return RunSelection(todo, quarantined, len(chosen) - len(stale))


def _holds(
    question: Callable[["Workspace", str], bool], workspace: "Workspace", demonstration: str
) -> bool:
    """The answer about one demonstration; no when it cannot be had, since its run reports why."""
    try:
        return question(workspace, demonstration)
    except Exception as error:  # noqa: BLE001 - the others are processed whatever it is
        _LOG.debug("%s: its state is left to its run (%s)", demonstration, type(error).__name__)
        return False
