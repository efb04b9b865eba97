"""Races of processes that write, read, prune and remove outputs of one store at the same time.

Two processes start each round together, and a third process checks the store afterwards. No output
may be incomplete, and an output that was opened must stay readable. `make faults` runs the races.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from demo_pipeline.store.errors import MissingOutput
from demo_pipeline.store.store import Store, open_store
from demo_pipeline_tests.simulator.s3_server import moto_server
from demo_pipeline_tests.store.making_outputs import put

_OUTPUTS = 20
_GRACE = 2.0  # seconds; longer than a round, and S3 stores times in whole seconds
_SPAWN = multiprocessing.get_context("spawn")  # connections to S3 cannot be used after a fork
Work = Callable[[Store, str, str], object]


def write(store: Store, output: str, text: str) -> object:
    put(store, output, {f"f{number}.txt": text * 50 for number in range(3)})
    return "written"


def prune(store: Store, _output: str, _text: str) -> object:
    store.prune(_GRACE)
    return "pruned"


def remove(store: Store, output: str, _text: str) -> object:
    store.remove(output)
    return "removed"


def read_slowly(store: Store, output: str, _text: str) -> object:
    """Opens an output and, like a build, reads it later, when it may have been replaced."""
    try:
        version = store.published(output)
        if version is None:
            return "none"
        time.sleep(0.2)
        folder = store.open_version(version)
        texts = {(folder / file.path).read_text() for file in version.manifest.files}
    except MissingOutput as error:
        return f"LOST {error}"
    return "read" if len(texts) == 1 else "MIXED"


def judge(store: Store, output: str, _text: str) -> object:
    """Returns the state of an output for readers. A state in capitals is a defect."""
    if store.published(output) is None:
        return "HALF" if output in store.outputs(output) else "none"
    return "HALF" if store.verify(output) else "whole"


RACES: dict[str, tuple[Work, Work]] = {
    "two writers": (write, write),
    "writer and prune": (write, prune),
    "writer and remove": (write, remove),
    "writer and a pinned reader": (write, read_slowly),
}


def _work(pipe: Connection, barrier: Barrier | None, work: Work, url: str, cache: str) -> None:
    store = open_store(url, Path(cache))
    while (task := pipe.recv()) is not None:
        if barrier:
            barrier.wait()
        try:
            pipe.send(work(store, *task))
        except Exception as error:  # noqa: BLE001 - any error is a finding of the race
            pipe.send(f"ERROR {type(error).__name__}: {error}")


@contextmanager
def _process(barrier: Barrier | None, work: Work, url: str, cache: Path) -> Iterator[Connection]:
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_work, args=(theirs, barrier, work, url, str(cache)))
    process.start()
    try:
        yield ours
    finally:
        ours.send(None)
        process.join()


def race(name: str, url: str, folder: Path, rounds: int) -> Counter[str]:
    """Returns how often each result occurred, over all rounds and all three processes."""
    results = Counter[str]()
    barrier = _SPAWN.Barrier(2)
    (first, second) = RACES[name]
    with ExitStack() as stack:
        pipes = [
            stack.enter_context(_process(barrier, work, url, folder / f"cache-{number}"))
            for number, work in enumerate((first, second))
        ]
        judging = stack.enter_context(_process(None, judge, url, folder / "cache-judge"))
        for number in range(rounds):
            output = f"events/d{number % _OUTPUTS}"
            for pipe, text in zip(pipes, "AB" if number % 2 else "BA", strict=True):
                pipe.send((output, text))
            answers: list[Any] = [pipe.recv() for pipe in pipes]
            judging.send((output, ""))
            results.update([*answers, judging.recv()])
    return results


def main() -> int:
    """Runs every race in a folder and in a bucket. Returns the exit code, 0 without a defect."""
    parser = argparse.ArgumentParser(prog="demo_pipeline_tests.faults.races", description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--kinds", nargs="*", default=["folder", "bucket"])
    chosen = parser.parse_args()
    bad = 0
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="races-")))
        server = stack.enter_context(stack.enter_context(moto_server()).connected())
        for kind in chosen.kinds:
            for number, name in enumerate(RACES):
                folder = root / f"{kind}-{number}"
                start = time.monotonic()
                url = server.make_bucket() if kind == "bucket" else str(folder / "store")
                results = race(name, url, folder, chosen.rounds)
                defects = [words for words in results if words.split()[0].isupper()]
                bad += len(defects)
                seconds = time.monotonic() - start
                print(f"{kind}, {name}: {dict(results)}, {seconds:.0f} s", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    os.environ.pop("DEMO_PIPELINE_CONFIG", None)
    sys.exit(main())
