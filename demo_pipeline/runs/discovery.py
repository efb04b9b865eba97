"""Requests runs for complete uploads that are new or changed.

A Dagster sensor calls this module periodically. Each call is a *look* at the uploads. Only uploads
that changed recently or are not in the store yet are remembered until the next look. This module
does not depend on Dagster.
"""

import hashlib
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE
from demo_pipeline.review.review_store import REVIEWS
from demo_pipeline.runs.demonstration_outputs import demonstration_states
from demo_pipeline.runs.failures import retry_pause
from demo_pipeline.runs.graph import Graph, is_of_present_inputs
from demo_pipeline.runs.quarantine import QUARANTINE_FOLDER, read_quarantine
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DiscoverySettings
from demo_pipeline.store.folder import ObjectInfo
from demo_pipeline.store.uploads import listing_fingerprint

# Time limit for checks of the store during a look, in seconds. The next look checks the remaining
# uploads.
_SECONDS_PER_LOOK = 20.0
NO_END = (False, 0.0)  # (cancelled, end time) for an upload that had no run yet
STOPPED = -1  # value of `SeenUpload.attempt` after a person cancelled the run; no run is requested


class ListedUpload(NamedTuple):
    """A folder in a listing of the uploads.

    Attributes:
        state: a hash that changes if a file of the folder or a reviewer's decision changes.
        is_whole: whether all required files of a recording exist.
        is_marked: whether the file `discovery.complete_marker` exists.
    """

    state: str
    is_whole: bool
    is_marked: bool


class SeenUpload(NamedTuple):
    """The facts that are remembered about an upload until the next look.

    Attributes:
        state: `ListedUpload.state` at the last look.
        since: when this state was seen first, epoch seconds.
        attempt: the number of runs that were requested for this state, or `STOPPED`.
    """

    state: str
    since: float
    attempt: int


@dataclass(frozen=True)
class UploadRequest:
    """A run to request for an upload.

    Attributes:
        state: `ListedUpload.state` of the upload.
        attempt: the number of this run for the same state, counted from 1.
        reason: `new`, `changed`, or `again` for a repeated attempt.
    """

    id: str
    state: str
    attempt: int
    reason: str

    @property
    def run_key(self) -> str:
        """The run key of the request. Dagster launches only one run for each run key."""
        return f"{self.id}@{self.state}#{self.attempt}"


@dataclass(frozen=True)
class Look:
    """The result of a look at the uploads.

    Attributes:
        requests: the runs to request.
        seen: maps ids to the uploads to remember until the next look.
        unstable: the number of uploads that changed less than `discovery.stable_seconds` ago.
        misnamed: the number of folders whose names are not valid demonstration ids.
    """

    requests: Sequence[UploadRequest]
    seen: Mapping[str, SeenUpload]
    unstable: int
    misnamed: int = 0


def list_uploads(workspace: Workspace) -> dict[str, ListedUpload]:
    """Maps names to the folders in the uploads.

    Raises:
        StorageError: the uploads or the store cannot be listed.
    """
    decisions: defaultdict[str, list[str]] = defaultdict(list)
    for key in workspace.store.list_documents(REVIEWS):
        match key.split("/"):
            case [_, name, file]:  # keys with other parts were not written by this package
                decisions[name].append(file.removesuffix(".json"))
    marker = workspace.settings.discovery.complete_marker
    folders = workspace.uploads.objects.by_folder()
    return {key: _listed(files, decisions.get(key, ()), marker) for key, files in folders.items()}


def _listed(files: Mapping[str, ObjectInfo], decisions: Sequence[str], marker: str) -> ListedUpload:
    state = listing_fingerprint(files)
    if decisions:
        ids = hashlib.sha256("\n".join(sorted(decisions)).encode()).hexdigest()
        state = hashlib.sha256(f"{state} {ids}".encode()).hexdigest()
    is_whole = set(RECORDING_FILES) <= files.keys()
    return ListedUpload(state[:16], is_whole, bool(marker) and marker in files)


def decide(  # noqa: PLR0917 - facts from six places
    listed: Mapping[str, ListedUpload],
    seen: Mapping[str, SeenUpload],
    settled: "SettledUploads",
    ends: Mapping[str, tuple[bool, float]],
    in_work: Collection[str],
    settings: DiscoverySettings,
) -> Look:
    """Decides which runs to request now.

    Args:
        listed: maps names to all folders in the uploads.
        seen: the uploads that the previous look remembered.
        settled: knows which uploads need no run.
        ends: maps ids to the last requested run: whether a person cancelled it, and when it ended.
        in_work: ids with a queued or active run.
    """
    now = time.time()
    requests: list[UploadRequest] = []
    remembered: dict[str, SeenUpload] = {}
    unstable = 0
    usable = settled.usable(listed)
    for key, upload in listed.items():
        if not (upload.is_whole and key in usable) or settled.was_settled(key, upload.state):
            continue
        before = seen.get(key)
        if before is None and settled.ask(key, upload.state) is not False:
            continue
        memory = SeenUpload(upload.state, now, 0)
        if before is not None and before.state == upload.state:
            memory = before
        remembered[key] = memory
        if key in in_work or memory.attempt == STOPPED:
            continue
        was_cancelled, ended = ends.get(key, NO_END)
        is_marked = upload.is_marked and before is None
        if now - memory.since < settings.stable_seconds and not is_marked:
            unstable += 1
        elif settled.ask(key, upload.state):
            del remembered[key]
        elif memory.attempt and was_cancelled:
            remembered[key] = memory._replace(attempt=STOPPED)
        elif not memory.attempt or now - ended > retry_pause(memory.attempt):
            attempt = memory.attempt + 1
            remembered[key] = memory._replace(attempt=attempt)
            reason = "again" if memory.attempt else settled.reason(key)
            requests.append(UploadRequest(key, memory.state, attempt, reason))
    return Look(requests, remembered, unstable, len(listed) - len(usable))


class SettledUploads:
    """Finds and remembers which uploads are settled and need no run.

    An upload is settled if the store has its outputs, of any code version, or a quarantine record.
    The store is checked again only if the upload or its quarantine record changed, or if a dataset
    left out the demonstration because of a damaged output.
    """

    def __init__(self) -> None:
        # Maps the ids of settled uploads to `ListedUpload.state` and the names of their quarantine
        # records, both from the time of the check.
        self._settled: dict[str, tuple[str, str]] = {}
        self._records: dict[str, str] = {}

    def begin(self, workspace: Workspace) -> None:
        """Begins an evaluation of the sensor; must be called before the other methods."""
        self._workspace = workspace
        self._graph = Graph(workspace, trusts_times=True)
        self.forget(self._graph.suspects)
        self._until = time.monotonic() + _SECONDS_PER_LOOK
        self._records = {}
        for key in workspace.store.list_documents(QUARANTINE_FOLDER):
            match key.split("/"):
                case [_, name, file]:
                    self._records[name] = f"{self._records.get(name, '')} {file}"

    def usable(self, names: Iterable[str]) -> set[str]:
        """Returns the names that are valid demonstration ids."""
        return self._workspace.uploads.usable(names)

    def was_settled(self, key: str, state: str) -> bool:
        """Returns whether the upload is known to be settled in this state, without a new check."""
        return self._settled.get(key) == (state, self._records.get(key, ""))

    def forget(self, keys: Collection[str]) -> None:
        """Removes the cached answers about these demonstrations."""
        for key in keys:
            self._settled.pop(key, None)

    def ask(self, key: str, state: str) -> bool | None:
        """Returns whether an upload is settled, or None if this look has no time left to check."""
        if time.monotonic() > self._until:
            return None
        quarantined = key in self._records
        answer = is_settled(self._workspace, key, quarantined=quarantined, graph=self._graph)
        if answer:
            self._settled[key] = (state, self._records.get(key, ""))
        return answer

    def reason(self, key: str) -> str:
        """Returns why an upload is processed: `new` or `changed`."""
        built = self._workspace.store.current(RAW_RECORDINGS_STAGE.output(key))
        return "new" if built is None and key not in self._records else "changed"


def is_settled(
    workspace: Workspace,
    demonstration: str,
    *,
    quarantined: bool = True,
    graph: Graph | None = None,
) -> bool:
    """Returns whether the store has every output, or a quarantine record, of the current upload.

    Args:
        quarantined: whether a quarantine record counts. If False, no record is read.
        graph: a graph that trusts file times; several calls may share it. None makes a new graph.
    """
    graph = graph or Graph(workspace, trusts_times=True)
    states = demonstration_states(graph, demonstration)
    is_built = all(map(is_of_present_inputs, states))
    graph.forget_states()
    if is_built:
        return True
    if not quarantined:
        return False
    record = read_quarantine(workspace.store, demonstration)
    return record is not None and record.fingerprint == workspace.uploads.identity(demonstration)


def stuck(seen: Mapping[str, SeenUpload]) -> Iterator[str]:
    """Yields the ids of uploads whose run was requested but whose outputs are still missing."""
    return (key for key, upload in seen.items() if upload.attempt > 0)


def as_plain(seen: Mapping[str, SeenUpload]) -> dict[str, list[str | float | int]]:
    """Converts remembered uploads to JSON values."""
    return {
        key: [upload.state, round(upload.since, 1), upload.attempt] for key, upload in seen.items()
    }


def from_plain(value: object) -> dict[str, SeenUpload]:
    """Converts JSON values from `as_plain` to remembered uploads.

    Returns an empty dictionary if the values have another format.
    """
    if not isinstance(value, dict):
        return {}
    with suppress(TypeError, ValueError):
        seen = {}
        for key, (state, since, attempt) in value.items():
            seen[key] = SeenUpload(str(state), float(since), int(attempt))
        return seen
    return {}
