"""Cases in which a byte flips in a store, in a folder or in buckets of a real S3 server.

In each case two demonstrations are built. Then a byte flips in an output or in a document with
decisions, and a third demonstration is uploaded, so that the datasets must be built again. All
datasets must leave out the same demonstration, and `run --strict` must name the file and the
remedy. The next `run`, or the daemon alone, must repair the store. A damaged document must be
named, and must have no effect until it is restored.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import dagster as dg

from demo_pipeline.review.review_store import Reviews, subject_of
from demo_pipeline.runs.quarantine import read_quarantine
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.bucket import Bucket
from demo_pipeline.store.names import VERSIONS
from demo_pipeline.store.split_memory import SPLIT_MEMORY
from demo_pipeline.store.versions import CONTENT
from demo_pipeline_tests.damage import broken_counts, flip_byte, flipped
from demo_pipeline_tests.defs.daemon import LOG, dagster_process, open_runs, wait_for
from demo_pipeline_tests.faults.commands import ROOT, Place, run_command
from demo_pipeline_tests.faults.daemon import DAEMON, QUICK_DISCOVERY
from demo_pipeline_tests.faults.scenarios import RUN, Case, Scene, Tally, require
from demo_pipeline_tests.faults.states import blamed, shown_tracebacks, stuck_runs
from demo_pipeline_tests.sample_workspace import open_workspace
from demo_pipeline_tests.simulator.s3_server import seaweed_server

STRICT = (*RUN, "--strict")
RECORDS = "records/a/messages.jsonl"
"""A file whose damage is always found, because datasets compare all records with their manifest."""
TASK = "trajectories/a/task.json"
"""A file whose damage is found only by `run --verify` and `revalidate`, which read all bytes."""
_PATIENCE = 600.0  # seconds; the longest wait took 228 s on a machine with a load of 9
_QUIET = 6.0  # seconds without an unfinished run: three ticks of the sensors


def damage_cases(count: int) -> Iterator[Case]:
    """Yields the first `count` cases."""
    cases: list[Case] = []
    for is_bucket in (False, True):
        cases.append(partial(damaged_records, is_bucket=is_bucket))
        cases.append(partial(damaged_task, is_bucket=is_bucket))
        cases.append(partial(damaged_splits, is_bucket=is_bucket))
        cases.append(partial(damaged_review, is_bucket=is_bucket))
        cases.append(partial(damaged_quarantine, is_bucket=is_bucket))
    cases.insert(1, repaired_by_daemon)
    yield from cases[:count]


def damaged_records(scene: Scene, place: Place, *, is_bucket: bool) -> Tally:
    """Checks that `run --strict` names damaged records, and that the next run repairs them."""
    with ExitStack() as stack:
        place = _built(scene, place, stack, is_bucket=is_bucket)
        _flip(place, RECORDS)
        _upload_third(scene, place)
        met = run_command(place, *STRICT)
        tally = Tally(cases=1, happened=1)
        complaints = shown_tracebacks(met.output) + blamed(_workspace(place))
        if met.code != 1:
            complaints.append(f"a strict run that met the damage ended with {met.code}")
        words = " ".join(met.output.split())
        if RECORDS not in words or "`demo-pipeline run` builds it again" not in words:
            complaints.append(f"{RECORDS} or its remedy is not named: {met.output[-1500:]}")
        if set(broken_counts(_workspace(place)).values()) != {1}:
            complaints.append(f"not 1 everywhere: {broken_counts(_workspace(place))}")
        complaints += _failed_strict_run(place, "the repairing run")
        complaints += _left_damage(place)
        return _judged(tally, place, complaints)


def damaged_task(scene: Scene, place: Place, *, is_bucket: bool) -> Tally:
    """Checks that `run --verify` names a damaged trajectory and repairs it."""
    with ExitStack() as stack:
        place = _built(scene, place, stack, is_bucket=is_bucket)
        _flip(place, TASK)
        verified = run_command(place, *STRICT, "--verify")
        tally = Tally(cases=1, happened=1)
        complaints = shown_tracebacks(verified.output)
        if verified.code != 0 or f"damaged: {TASK}: " not in " ".join(verified.output.split()):
            complaints.append(f"exit code {verified.code}: {verified.output[-1500:]}")
        complaints += _left_damage(place, ("a", "b"))
        return _judged(tally, place, complaints)


def damaged_splits(scene: Scene, place: Place, *, is_bucket: bool) -> Tally:
    """Checks that `run` names a damaged memory of splits, and assigns no new splits meanwhile."""
    with ExitStack() as stack:
        place = _built(scene, place, stack, is_bucket=is_bucket)
        store = _workspace(place).store
        before = _flip_document(place, SPLIT_MEMORY)
        _upload_third(scene, place)
        met = run_command(place, *RUN)
        tally = Tally(cases=1, happened=1)
        complaints = shown_tracebacks(met.output)
        if met.code != 1 or f"{SPLIT_MEMORY} was damaged" not in " ".join(met.output.split()):
            complaints.append(f"exit code {met.code}: {met.output[-1500:]}")
        if store.get_document(SPLIT_MEMORY) != flipped(before):
            complaints.append(f"{SPLIT_MEMORY} was written")
        store.put_document(SPLIT_MEMORY, before)
        complaints += _failed_strict_run(place, "the restored run")
        complaints += _left_damage(place)
        return _judged(tally, place, complaints)


def damaged_review(scene: Scene, place: Place, *, is_bucket: bool) -> Tally:
    """Checks that `run` names a damaged review.

    The demonstration that the review rejected must stay left out.
    """
    with ExitStack() as stack:
        place = _built(scene, place, stack, is_bucket=is_bucket)
        store = _workspace(place).store
        folder, version = store.open("trajectories/a")
        decision = Reviews(store).make(
            subject_of(version, "a"), folder, "reviewer", "reject", {"reason": "unfinished"}
        )
        review = f"reviews/a/{decision.id}.json"
        require(run_command(place, *RUN), "the run that reads the review")
        tally = Tally(cases=1, happened=1)
        complaints = _trained_on(place, "a", "before the damage")
        before = _flip_document(place, review)
        _upload_third(scene, place)
        met = run_command(place, *STRICT)
        complaints += shown_tracebacks(met.output)
        if met.code != 1 or f"{review} was damaged" not in " ".join(met.output.split()):
            complaints.append(f"exit code {met.code}: {met.output[-1500:]}")
        complaints += _trained_on(place, "a", "while the review is damaged")
        if _workspace(place).store.current("records/c") is None:
            complaints.append("the third upload is not built beside the damaged review")
        _workspace(place).store.put_document(review, before)
        complaints += _failed_strict_run(place, "the restored run")
        complaints += _trained_on(place, "a", "after the repair")
        complaints += _left_damage(place)
        return _judged(tally, place, complaints)


def damaged_quarantine(scene: Scene, place: Place, *, is_bucket: bool) -> Tally:
    """Checks that `revalidate` names a damaged quarantine record, and `run` writes it again."""
    with ExitStack() as stack:
        place = _built(scene, place, stack, is_bucket=is_bucket)
        _upload_third(scene, place)
        _workspace(place).uploads.objects.put("c/meta.json", b"{")
        rejected = run_command(place, *RUN)
        tally = Tally(cases=1, happened=1)
        complaints = shown_tracebacks(rejected.output)
        [record] = _workspace(place).store.list_documents("quarantine/c")
        _flip_document(place, record)
        named = run_command(place, "revalidate")
        if named.code != 1 or record not in " ".join(named.output.split()):
            complaints.append(f"revalidate ended with {named.code}: {named.output[-1500:]}")
        again = run_command(place, *RUN)
        complaints += shown_tracebacks(named.output + again.output)
        quarantined = read_quarantine(_workspace(place).store, "c")
        if quarantined is None or quarantined.problems[0]["code"] == "unreadable_record":
            complaints.append(f"the record was not written again: {quarantined}")
        _upload_third(scene, place)
        complaints += _failed_strict_run(place, "the mended upload")
        complaints += _left_damage(place)
        return _judged(tally, place, complaints)


def repaired_by_daemon(scene: Scene, place: Place) -> Tally:
    """Checks that the daemon alone repairs damaged records.

    The daemon has processed all uploads before the damage, and nobody calls `run`.
    """
    with ExitStack() as stack:
        place = _built(scene, place, stack, is_bucket=False)
        home = place.folder / "home"
        environment = {**place.environment, **QUICK_DISCOVERY}
        instance = stack.enter_context(dg.DagsterInstance.from_config(str(home)))
        tally = Tally(cases=1, happened=1)
        with dagster_process(DAEMON, home, environment) as daemon:
            wait_for(daemon, _Quiet(instance).is_over, "a quiet daemon", _PATIENCE)
            _flip(place, RECORDS)
            _upload_third(scene, place)
            start = time.monotonic()
            output = RECORDS.rpartition("/")[0]

            def is_repaired() -> bool:
                workspace = _workspace(place)
                return (
                    workspace.store.current("records/c") is not None
                    and not workspace.store.verify(output)
                    and not any(broken_counts(workspace).values())
                )

            wait_for(daemon, is_repaired, f"{output} is repaired", _PATIENCE, pause=1.0)
            print(f"{place.folder.name}: repaired after {time.monotonic() - start:.0f} s")
            wait_for(daemon, _Quiet(instance).is_over, "the end of all runs", _PATIENCE)
            log = (home / LOG).read_text(encoding="utf-8", errors="replace")
        return _judged(tally, place, shown_tracebacks(log) + _left_damage(place))


class _Quiet:
    """Finds out whether a Dagster instance had no unfinished run for some seconds."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.since = time.monotonic()

    def is_over(self) -> bool:
        if open_runs(self.instance):
            self.since = time.monotonic()
        return time.monotonic() - self.since > _QUIET


def _built(scene: Scene, place: Place, stack: ExitStack, *, is_bucket: bool) -> Place:
    """Builds two demonstrations, in a folder or in buckets; returns the changed place."""
    if is_bucket:
        server = stack.enter_context(seaweed_server(place.folder / "seaweed"))
        stack.enter_context(server.connected())
        shutil.rmtree(place.folder / "home")
        (place.folder / "home").mkdir()
        shutil.copyfile(ROOT / "dagster.yaml", place.folder / "home" / "dagster.yaml")
        buckets = {
            "DEMO_PIPELINE_UPLOADS": server.make_bucket(),
            "DEMO_PIPELINE_STORE": server.make_bucket(),
        }
        place = Place(place.folder, {**buckets, **server.environment()})
        _upload(place, _recordings(scene) / "new")
    require(run_command(place, *RUN), "the run before the damage")
    return place


def _recordings(scene: Scene) -> Path:
    return scene.start.parent / "recordings"


def _upload_third(scene: Scene, place: Place) -> None:
    recording = place.folder / "third"
    shutil.copytree(_recordings(scene) / "old" / "a", recording / "c", dirs_exist_ok=True)
    _upload(place, recording)


def _upload(place: Place, recordings: Path) -> None:
    objects = _workspace(place).uploads.objects
    for path in sorted(recordings.rglob("*.*")):
        objects.put(path.relative_to(recordings).as_posix(), path)


def _flip(place: Place, file: str) -> None:
    """Flips a byte of a committed file in the store, and deletes the cached copies."""
    store = _workspace(place).store
    output, _, name = file.rpartition("/")
    version = store.published(output)
    assert version is not None
    if isinstance(store.objects, Bucket):
        key = f"{VERSIONS}{version.path}/{CONTENT}/{name}"
        data = store.objects.read(key)
        assert data is not None
        store.objects.put(key, flipped(data))
    else:
        flip_byte(_workspace(place), output, name)
    shutil.rmtree(place.folder / "cache", ignore_errors=True)


def _flip_document(place: Place, key: str) -> bytes:
    """Flips a byte of a document; returns the undamaged content."""
    store = _workspace(place).store
    before = store.get_document(key)
    assert before is not None
    store.put_document(key, flipped(before))
    return before


def _trained_on(place: Place, demonstration: str, when: str) -> list[str]:
    """Returns a sentence for each dataset file that contains a demonstration."""
    store = _workspace(place).store
    complaints = list[str]()
    for output in ("sft", "messages"):
        folder, _ = store.open(output)
        for file in sorted(folder.rglob("*.jsonl")):
            if f'"{demonstration}"' in file.read_text(encoding="utf-8"):
                complaints.append(f"{output}/{file.name} has {demonstration} {when}")
    return complaints


def _failed_strict_run(place: Place, name: str) -> list[str]:
    """Runs `run --strict`. If its exit code is not 0, returns a sentence with its output."""
    strict_run = run_command(place, *STRICT)
    if strict_run.code == 0:
        return []
    return [f"{name}: {strict_run.code}: {strict_run.output[-1500:]}"]


def _workspace(place: Place) -> Workspace:
    roots = {
        root: place.changes[variable]
        for root in ("uploads", "store")
        if (variable := f"DEMO_PIPELINE_{root.upper()}") in place.changes
    }
    cache = place.folder / f"cache-of-observer-{time.monotonic_ns()}"
    return open_workspace(place.folder, cache=str(cache), **roots)


def _left_damage(place: Place, ids: Sequence[str] = ("a", "b", "c")) -> list[str]:
    """Returns a sentence for each fault that remains after the repair."""
    workspace = _workspace(place)
    wrong = [
        f"{output} does not fit its manifest"
        for output in workspace.store.outputs()
        if workspace.store.verify(output)
    ]
    if any(counts := broken_counts(workspace).values()):
        wrong.append(f"still left out: {counts}")
    wrong += [
        f"{key} is not built" for key in ids if workspace.store.current(f"records/{key}") is None
    ]
    return wrong + blamed(workspace)


def _judged(tally: Tally, place: Place, complaints: Sequence[str]) -> Tally:
    case = place.folder.name
    tally.torn += [f"{case}: {complaint}" for complaint in complaints]
    tally.stuck += [f"{case}: {line}" for line in stuck_runs(place.folder / "home")]
    if tally.is_clean:
        shutil.rmtree(place.folder)
    return tally
