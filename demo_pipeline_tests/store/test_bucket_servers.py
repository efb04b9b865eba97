"""The store on real S3 servers, which behave as the tests in memory assume."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from demo_pipeline.store.errors import MissingOutput
from demo_pipeline.store.store import open_store
from demo_pipeline_tests.store.making_outputs import put, seen

FILES = {"a.txt": "alpha", "deep/b ü.txt": "beta", "empty": ""}


@pytest.fixture(params=["moto_url", "seaweedfs_url"])
def url(request):
    return f"{request.getfixturevalue(request.param)}/any/store"


@pytest.mark.no_cover  # other tests run the same lines
def test_outputs_are_committed_linked_read_elsewhere_verified_and_collected(url, tmp_path):
    store, other = open_store(url, tmp_path / "a"), open_store(url, tmp_path / "b")
    assert store.outputs() == []
    assert store.current("sft") is None
    trajectory = put(store, "trajectories/d1", FILES)
    put(store, "dataset", {"index.json": "[]"}, {"trajectories/d1": trajectory})
    put(store, "trajectories/d1", FILES | {"a.txt": "new"})
    wanted = {f"trajectories/d1/{path}": text for path, text in FILES.items()}
    assert seen(other, "dataset") == wanted | {"index.json": "[]"}
    assert other.outputs() == ["dataset", "trajectories/d1"]
    assert other.outputs("trajectories") == ["trajectories/d1"]
    assert [other.verify(output) for output in other.outputs()] == [[], []]
    assert put(other, "trajectories/d1", FILES) == trajectory
    assert seen(store, "trajectories/d1") == FILES
    store.remove("dataset")
    assert other.current("dataset") is None
    assert len(store.collect(60, now=0)) == 0
    removed = store.collect(60, now=1e12)
    assert [name.partition("@")[0] for name in removed] == ["dataset", "trajectories/d1"]
    assert store.verify("trajectories/d1") == []
    with pytest.raises(MissingOutput):
        seen(store, "dataset")


def test_a_replaced_object_is_never_served(url, tmp_path):
    store = open_store(url, tmp_path / "a")
    version = put(store, "sft", FILES)
    store.objects.put(f"versions/sft/{version.id}/content/a.txt", b"ALPHA")
    reader = open_store(url, tmp_path / "b")
    with pytest.raises(MissingOutput):
        seen(reader, "sft")
    assert put(store, "sft", FILES) == version
    assert seen(reader, "sft") == FILES


@pytest.mark.no_cover  # other tests run the same lines
def test_machines_that_commit_at_once_all_succeed_and_nothing_is_mixed(url, tmp_path):
    def commit(name):
        store = open_store(url, tmp_path / name)
        return [put(store, "sft", dict.fromkeys(("a", "b"), f"{name}{n % 2}")) for n in range(3)]

    with ThreadPoolExecutor(3) as pool:
        committed = [version for versions in pool.map(commit, "xyz") for version in versions]
    reader = open_store(url, tmp_path / "reader")
    assert reader.current("sft") in committed
    assert len(set(seen(reader, "sft").values())) == 1
    assert reader.verify("sft") == []
