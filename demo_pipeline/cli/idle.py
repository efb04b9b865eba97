"""Finding out, without Dagster, that a run or a registration has nothing to do.

Belongs here: the questions and their order. Whatever cannot be answered here is left to the
ordinary way, which also reports what is wrong.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from demo_pipeline.cli.run_selection import (
    RunSelection,
    require_known,
    select_demonstrations,
    uploaded_ids,
)

if TYPE_CHECKING:
    from demo_pipeline.pipeline.context import Workspace
    from demo_pipeline.pipeline.outcomes import DatasetOutcome
    from demo_pipeline.settings import Settings

_LOG = logging.getLogger(__package__)


def is_recorded(workspace: "Workspace", home: Path, known: Sequence[str]) -> bool:
    """Whether Dagster knows every upload and no run is open; what dead processes left is removed.

    Args:
        workspace: the roots that are cleared.
        home: the folder in which Dagster records runs.
        known: ids in the uploads root.
    """
    from demo_pipeline.defs.home_files import is_settled
    from demo_pipeline.pipeline.leftovers import clear_leftovers

    if not is_settled(home, known):
        return False
    clear_leftovers(workspace)
    return True


def find_idle(
    settings: "Settings", home: Path, ids: Sequence[str] | None, *, retry: bool
) -> "tuple[RunSelection, list[DatasetOutcome]] | None":
    """What there is when a run would build nothing; None when it would, or when nobody knows.

    Raises:
        typer.Exit: an id of `ids` is not in the uploads root.
        StorageError: a root cannot be opened.
    """
    from demo_pipeline.pipeline.context import Workspace
    from demo_pipeline.pipeline.idle_run import tasks_unchanged, unchanged_datasets

    workspace = Workspace.open(settings)
    known = uploaded_ids(workspace)
    require_known(workspace, ids or (), known)
    try:
        if not is_recorded(workspace, home, known) or not tasks_unchanged(workspace):
            return None
        selection = select_demonstrations(workspace, ids, known, forced=(), retry=retry)
        datasets = None if selection.todo else unchanged_datasets(workspace)
    except Exception as error:  # noqa: BLE001 - the ordinary run reports whatever it is
        _LOG.debug("what is to do is left to the ordinary run (%s)", type(error).__name__)
        return None
    return None if datasets is None else (selection, datasets)
