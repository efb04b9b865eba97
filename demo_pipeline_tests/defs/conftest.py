"""Makes Dagster instances on disk faster."""

from collections.abc import Iterator

import pytest

from demo_pipeline_tests.defs.quick_storage import quick_storage


@pytest.fixture(autouse=True, scope="session")
def quick() -> Iterator[None]:
    with quick_storage():
        yield
