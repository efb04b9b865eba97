"""What the tests of this folder share."""

import pytest

from demo_pipeline.storage.bucket_store import BucketStore
from demo_pipeline.storage.local import LocalStore
from demo_pipeline_tests.storage.memory_objects import MemoryObjects


@pytest.fixture(params=["local", "bucket"])
def either(request, tmp_path):
    """An empty store of each kind, for what is true of all."""
    if request.param == "local":
        return LocalStore(tmp_path / "store")
    return BucketStore(MemoryObjects(shuffle=1), tmp_path / "cache")
