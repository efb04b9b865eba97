"""Tests that a store stays usable if a process dies before any call that changes it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.store.bucket import Bucket
from demo_pipeline.store.store import Store
from demo_pipeline_tests.store import killing
from demo_pipeline_tests.store.killing import DOCUMENT, NEW, OLD, OUTPUT
from demo_pipeline_tests.store.making_outputs import elsewhere, put, seen

PROJECT = Path(__file__).resolve().parents[2]
KINDS = ["folder", "bucket"]
COMMITS = [("first", None), ("replace", OLD), ("take", OLD), ("return", OLD), ("repair", None)]


class _DiedError(BaseException):
    """Simulates the death of the process, which then changes nothing in the bucket any more."""


class Dying(Bucket):
    """A bucket whose process dies just before its n-th call that changes the bucket."""

    def __init__(self, url: str, cache: Path, calls: int) -> None:
        super().__init__(url, cache)
        self.left = calls

    def _count(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise _DiedError

    def put(self, key: str, data: bytes | Path, **condition: str) -> None:
        self._count()
        super().put(key, data, **condition)

    def call(self, method: str, key: str = "", **arguments: Any) -> Any:
        if method.startswith(("delete", "abort", "create", "upload", "complete")):
            self._count()
        return super().call(method, key, **arguments)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Store]]:
    """Returns scenario → the stores in which a process died, sorted by the number of the call."""
    root = tmp_path_factory.mktemp("killed")
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    subprocess.run([sys.executable, killing.__file__, str(root)], check=True, env=environment)
    folders: dict[str, list[Store]] = {}
    for scenario in killing.SCENARIOS:
        paths = sorted((root / scenario).iterdir(), key=lambda path: int(path.name))
        folders[scenario] = [Store(path) for path in paths]
    return folders


def buckets(url: str, tmp_path: Path, scenario: str) -> Iterator[Store]:
    """Yields stores in a bucket in which a process died, each before a later call.

    The cache of each store was not used by the dead process.
    """
    before, work = killing.SCENARIOS[scenario]
    for calls in range(1, 100):
        place = f"{url}/{scenario}/{calls}"
        died = False
        before(Store(Bucket(place, tmp_path / f"{calls}-before")))
        try:
            work(Store(Dying(place, tmp_path / f"{calls}-dying", calls)))
        except _DiedError:
            died = True
        yield Store(Bucket(place, tmp_path / f"{calls}"))
        if not died:
            return


@pytest.fixture
def killed(request: pytest.FixtureRequest, tmp_path: Path, moto_url: str) -> Any:
    """Returns a function from a scenario to its stores, all in folders or all in buckets."""
    if request.param == "folder":
        return request.getfixturevalue("folders").__getitem__
    return lambda scenario: buckets(moto_url, tmp_path, scenario)


@pytest.mark.parametrize("killed", KINDS, indirect=True)
@pytest.mark.parametrize(("scenario", "before"), COMMITS)
def test_a_killed_commit_leaves_the_old_or_the_new_version_and_the_next_one_works(
    killed, scenario, before
):
    states = []
    for store in killed(scenario):
        whole = store.published(OUTPUT) is not None and not store.verify(OUTPUT)
        state = seen(store, OUTPUT) if whole else None
        assert state in (before, NEW)
        states.append(state)
        version = put(store, OUTPUT, NEW)
        assert seen(elsewhere(store), OUTPUT) == NEW
        assert store.verify(OUTPUT) == []
        store.prune(killing.ALL)
        assert store.current(OUTPUT) == version
        require_clean(store, OUTPUT)
    assert len(states) >= 4
    assert states[0] == before
    assert states[-1] == NEW
    assert states == sorted(states, key=lambda state: state == NEW)


@pytest.mark.parametrize("killed", KINDS, indirect=True)
def test_a_killed_write_leaves_the_old_or_the_new_document(killed):
    states = []
    for store in killed("document"):
        states.append(store.get_document(DOCUMENT))
        store.put_document(DOCUMENT, b"next")
        assert store.get_document(DOCUMENT) == b"next"
        assert store.list_documents("quarantine") == [DOCUMENT]
    assert set(states) == {b"old", b"new"}


@pytest.mark.parametrize("killed", KINDS, indirect=True)
def test_a_killed_prune_removes_nothing_needed_and_the_next_one_completes_it(killed):
    for store in killed("prune"):
        assert seen(store, OUTPUT) == OLD
        store.prune(killing.ALL)
        assert store.verify(OUTPUT) == []
        require_clean(store, OUTPUT)


@pytest.mark.parametrize("killed", KINDS, indirect=True)
def test_a_killed_removal_leaves_the_whole_output_or_nothing(killed):
    states = []
    for store in killed("remove"):
        states.append(bool(store.outputs()))
        assert not states[-1] or seen(store, OUTPUT) == OLD
        store.remove(OUTPUT)
        store.prune(killing.ALL)
        assert names_in(store, "versions/") == []
    assert states[0]
    assert not states[-1]


@pytest.mark.parametrize("killed", KINDS, indirect=True)
def test_forgetting_again_after_a_crash_leaves_nothing_with_the_id(killed):
    for store in killed("forget"):
        killing.forget(store)
        assert store.outputs() == []
        assert [name for name in names_in(store, "") if "d1" in name] == []


def names_in(store: Store, prefix: str) -> list[str]:
    """Returns the keys of a bucket, or the paths in a folder, that begin with `prefix`.

    In a folder, the names begin with a dot, such as `.versions`.
    """
    if isinstance(store.objects, Bucket):
        return [info.key for info in store.objects.listing(prefix)]
    root = Path(store.url)
    paths = (path.relative_to(root).as_posix() for path in root.rglob("*"))
    hidden_prefix = f".{prefix}" if prefix else ""
    return [path for path in paths if path.startswith(hidden_prefix)]


def require_clean(store: Store, output: str) -> None:
    """Asserts that only the current version of an output exists, and nothing unfinished."""
    current = store.current(output)
    assert current
    if isinstance(store.objects, Bucket):
        keys = [key for key in names_in(store, f"versions/{output}/") if current.place not in key]
        assert keys == []
    else:
        root = Path(store.url)
        assert list((root / ".staging").rglob("*")) == []
        assert [path.name for path in (root / ".versions" / output).iterdir()] == [current.place]
