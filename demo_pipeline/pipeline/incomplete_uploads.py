"""Uploads that have neither a run nor a record: they lack a file, or their names hide them.

Belongs here: finding them, for people. The daemon waits for a missing file; when an upload counts
as complete is decided in discovery/.
"""

from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.quarantine import list_quarantine
from demo_pipeline.storage.ids import printable_name
from demo_pipeline.storage.objects.urls import is_bucket, local_path


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


def hidden_uploads(workspace: Workspace) -> list[str]:
    """Names of folders with a file of a recording that are skipped, as they begin with a dot.

    Of a bucket, the first page of such objects is read.

    Raises:
        StorageError: the uploads cannot be read.
    """
    url = workspace.uploads.url
    if is_bucket(url):
        keys = (info.key.split("/") for info in workspace.uploads.objects.list_page(".").objects)
        return sorted({key[0] for key in keys if len(key) == 2 and key[1] in RECORDING_FILES})
    found = (path for name in RECORDING_FILES for path in local_path(url).glob(f".*/{name}"))
    return sorted({printable_name(path.parent.name) for path in found})


def _sentence(names: list[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} missing"
