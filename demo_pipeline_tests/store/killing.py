"""Kills a process before each of its calls that change a file, in several scenarios.

Usage: `python killing.py ROOT`. For each scenario and each call number n, the program makes the
store `ROOT/<scenario>/<n>`. In this store, a child process died just before its n-th call. The
last child of each scenario has fewer than n calls and survives.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from demo_pipeline.files.atomic_write import link_or_copy
from demo_pipeline.review.review_store import forget_demonstration
from demo_pipeline.store.folder import Folder
from demo_pipeline.store.store import Store
from demo_pipeline_tests.faults.injection import Disturbance, Injection
from demo_pipeline_tests.store.making_outputs import put, recipe

OLD = {"a.txt": "old", "deep/b.txt": "old"}
NEW = {"a.txt": "new", "deep/b.txt": "new"}
OUTPUT = "events/d1"
SOURCE = "sources/d2"
INDEX = "dataset"
DOCUMENT = "quarantine/d1/x.json"
ALL = -5.0  # grace period in seconds with which `prune` also removes versions made just now
KILLED = -signal.SIGKILL
Work = Callable[[Store], object]


def nothing(_store: Store) -> None:
    """Leaves the store empty."""


def old(store: Store) -> None:
    put(store, OUTPUT, OLD)
    store.put_document(DOCUMENT, b"old")


def old_after_new(store: Store) -> None:
    """Publishes the new version, and then the old version."""
    put(store, OUTPUT, NEW)
    put(store, OUTPUT, OLD)


def broken(store: Store) -> None:
    """Publishes a version, and removes one of its files."""
    version = put(store, OUTPUT, NEW)
    if isinstance(store.objects, Folder):
        (Path(store.url) / OUTPUT / "deep/b.txt").unlink()
    else:
        store.objects.delete(f"versions/{version.path}/content/deep/b.txt")


def source(store: Store) -> None:
    put(store, OUTPUT, OLD)
    put(store, SOURCE, NEW)


def remembered(store: Store) -> None:
    """Stores two versions, a document, and a dataset that links one of the versions."""
    old_after_new(store)
    store.put_document(DOCUMENT, b"old")
    current = store.current(OUTPUT)
    put(store, INDEX, {"index.json": "[]"}, {OUTPUT: current} if current else {})


def commit(store: Store) -> None:
    put(store, OUTPUT, NEW)


def take(store: Store) -> None:
    """Commits files that are hard links to the files of another output."""
    folder, version = store.open(SOURCE)
    with store.stage(OUTPUT) as staging:
        staging.hardlink_sources.append(version)
        for path in NEW:
            (staging.path / path).parent.mkdir(exist_ok=True)
            link_or_copy(folder / path, staging.path / path)
        store.commit(staging, recipe(), {"files": len(NEW)})


def document(store: Store) -> None:
    store.put_document(DOCUMENT, b"new")


def prune(store: Store) -> None:
    store.prune(ALL)


def remove(store: Store) -> None:
    store.remove(OUTPUT)


def forget(store: Store) -> None:
    forget_demonstration(store, "d1", [])


SCENARIOS: dict[str, tuple[Work, Work]] = {
    "first": (nothing, commit),
    "replace": (old, commit),
    "take": (source, take),
    "return": (old_after_new, commit),
    "repair": (broken, commit),
    "document": (old, document),
    "prune": (old_after_new, prune),
    "remove": (old, remove),
    "forget": (remembered, forget),
}


def dies(root: Path, calls: int, work: Work) -> bool:
    """Returns whether a child process that runs `work` is killed before call number `calls`."""
    child = os.fork()
    if child == 0:
        Injection(Disturbance(root, "kill", calls, "main", root.with_suffix(".log"))).install()
        work(Store(root))
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, KILLED):
        raise SystemExit(f"{root}: the child ended with {code}")
    return code == KILLED


def main(root: Path) -> None:
    os.fsync = lambda fd: None  # noqa: ARG005 - the system keeps the writes of a killed process
    for name, (before, work) in SCENARIOS.items():
        start = root / f"{name}-start"
        start.mkdir(parents=True)
        before(Store(start))
        for calls in range(1, 1000):
            store = root / name / str(calls)
            shutil.copytree(start, store, symlinks=True)
            if not dies(store, calls, work):
                break
        for log in (root / name).glob("*.log"):
            log.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
