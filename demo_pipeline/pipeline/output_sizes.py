"""How many bytes an output wrote to its store.

Belongs here: the one figure that people see for each dataset, for folders and for buckets.
"""

from demo_pipeline.storage.errors import MissingOutput
from demo_pipeline.storage.objects.urls import is_bucket
from demo_pipeline.storage.store.store import Store


def bytes_written(store: Store, output: str) -> int:
    """Bytes that the current version of an output wrote to the store.

    In a folder hard links to files of other versions count nothing; a bucket has none, so there
    every file counts. Links to whole versions never count.

    Raises:
        MissingOutput: the output was never built.
    """
    version = store.current(output)
    if version is None:
        raise MissingOutput(output)
    if is_bucket(store.url):
        return version.manifest.files.size
    with store.open(output) as (folder, opened):
        found = ((folder / file.path).stat() for file in opened.manifest.files)
        return sum(status.st_size for status in found if status.st_nlink == 1)
