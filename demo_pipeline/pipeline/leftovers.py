"""Unfinished files that dead processes of this machine left in store, uploads and cache.

Belongs here: removing them before a run.
"""

import logging

from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.transient import transient_reason
from demo_pipeline.storage.errors import StorageError

_LOG = logging.getLogger(__package__)


def clear_leftovers(workspace: Workspace) -> list[str]:
    """Remove them; returns one line for each. What cannot be removed is left for the next time."""
    lines: list[str] = []
    for root in (workspace.store, workspace.uploads):
        try:
            lines += [f"{name} of a dead process was removed" for name in root.remove_leftovers()]
        except (OSError, StorageError) as error:
            _LOG.warning("leftovers cannot be removed: %s", transient_reason(error))
    return lines
