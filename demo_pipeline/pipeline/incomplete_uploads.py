"""Uploads that lack a file: the daemon waits for it, so that they have neither a run nor a record.

Belongs here: finding them, for people. When an upload counts as complete is decided in discovery/.
"""

from demo_pipeline.common.recording_files import RECORDING_FILES
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.quarantine import list_quarantine


def incomplete_uploads(workspace: Workspace) -> dict[str, str]:
    """Demonstration → which of its files are missing, sorted; without the quarantined ones.

    Raises:
        StorageError: the uploads or the store cannot be read.
    """
    quarantined = {record.demonstration for record in list_quarantine(workspace.store)}
    missing = {
        upload.id: [name for name in RECORDING_FILES if name not in upload.files]
        for upload in workspace.uploads.list_demonstrations()
        if upload.id not in quarantined
    }
    return {key: _sentence(names) for key, names in sorted(missing.items()) if names}


def _sentence(names: list[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} missing"
