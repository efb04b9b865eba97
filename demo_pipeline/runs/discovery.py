"""Decides for which uploads a run is requested: complete uploads that are new or changed.

A sensor calls this module again and again; each call is a *look* at the uploads. The store knows
which uploads are built or rejected, and the caller knows which uploads have a run. Only uploads
that changed a moment ago, or are not in the store yet, are remembered until the next look. This
module does not depend on Dagster.
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

_SECONDS_PER_LOOK = 20.0  # for questions to the store; the next look asks the remaining ones
NO_END = (False, 0.0)  # end of a run that never existed: not cancelled, and long ago
STOPPED = -1  # value of `SeenUpload.attempt`: a person cancelled the run, so none is requested


class ListedUpload(NamedTuple):
    """A folder in a listing of the uploads.

    Attributes:
        state: a hash that changes when a file of the folder or the decisions of reviewers change.
        is_whole: whether all files of a recording exist.
        is_marked: whether the file `discovery.complete_marker` exists.
    """

    state: str
    is_whole: bool
    is_marked: bool


class SeenUpload(NamedTuple):
    """The facts that are remembered about an upload until the next look.

    Attributes:
        state: see `ListedUpload`.
        since: the time at which this state was seen first, epoch seconds.
        attempt: the number of runs that were requested for this state, or `STOPPED`.
    """

    state: str
    since: float
    attempt: int


@dataclass(frozen=True)
class UploadRequest:
    """A run to request for an upload.

    Attributes:
        id: the id of the demonstration.
        state: see `ListedUpload`.
        attempt: the number of this run among the runs for the same state, from 1.
        reason: `new`, `changed` or `again`.
    """

    id: str
    state: str
    attempt: int
    reason: str

    @property
    def run_key(self) -> str:
        """The key of the request: Dagster launches only one run for equal keys."""
        return f"{self.id}@{self.state}#{self.attempt}"


@dataclass(frozen=True)
class Look:
    """The result of a look at the uploads.

    Attributes:
        requests: the runs to request.
        seen: the remembered uploads, for the next look.
        unstable: the number of uploads that changed less than `discovery.stable_seconds` ago.
        misnamed: the number of folders whose names cannot be ids.
    """

    requests: Sequence[UploadRequest]
    seen: Mapping[str, SeenUpload]
    unstable: int
    misnamed: int = 0


def list_uploads(workspace: Workspace) -> dict[str, ListedUpload]:
    """Returns name → upload for every folder in the uploads.

    It lists the uploads once and the decisions of reviewers once.

    Raises:
        StorageError: the uploads or the store cannot be listed.
    """
    decisions: defaultdict[str, list[str]] = defaultdict(list)
    for key in workspace.store.list_documents(REVIEWS):
        match key.split("/"):
            case [_, name, file]:  # keys of another form were not written by the package
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
        listed: every folder in the uploads.
        seen: the uploads that the previous look remembered.
        settled: tells whether the store has all outputs of an upload.
        ends: id → whether a person cancelled its last requested run, and when that run ended.
        in_work: ids with a queued or active run.
        settings: the section `discovery` of the settings.
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
    """Tells whether uploads are settled: the store has their outputs or a quarantine record.

    Outputs count even if other code built them: new code does not cause every upload to be
    processed again. An object is used for all looks of a process and remembers its answers. It asks
    the store again about a settled upload only if the upload or its quarantine record changed, or
    if a dataset left the demonstration out because of a damaged output.
    """

    def __init__(self) -> None:
        self._settled: dict[str, tuple[str, str]] = {}  # id → state, names of quarantine records
        self._records: dict[str, str] = {}

    def begin(self, workspace: Workspace) -> None:
        """Prepares the questions of a look; call it first in each look."""
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
        """Returns the names that can be ids."""
        return self._workspace.uploads.usable(names)

    def was_settled(self, key: str, state: str) -> bool:
        """Returns whether the upload was settled in this state at an earlier question."""
        return self._settled.get(key) == (state, self._records.get(key, ""))

    def forget(self, keys: Collection[str]) -> None:
        """Forgets the answers about these demonstrations."""
        for key in keys:
            self._settled.pop(key, None)

    def ask(self, key: str, state: str) -> bool | None:
        """Returns whether an upload is settled; None if this look has no time left to find out."""
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
    """Returns whether the store has every output, or a quarantine record, of the present upload.

    Args:
        workspace: store and uploads.
        demonstration: the id of the upload.
        quarantined: whether it may have a quarantine record, which is then read.
        graph: a graph that trusts times, used for several questions; None: a new one.
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
    """Yields the ids for which a run was requested and whose outputs are not in the store yet."""
    return (key for key, upload in seen.items() if upload.attempt > 0)


def as_plain(seen: Mapping[str, SeenUpload]) -> dict[str, list[str | float | int]]:
    """Returns remembered uploads as JSON values, which `from_plain` reads."""
    return {
        key: [upload.state, round(upload.since, 1), upload.attempt] for key, upload in seen.items()
    }


def from_plain(value: object) -> dict[str, SeenUpload]:
    """Returns the remembered uploads from JSON values; empty if `as_plain` did not write them."""
    if not isinstance(value, dict):
        return {}
    with suppress(TypeError, ValueError):
        seen = {}
        for key, (state, since, attempt) in value.items():
            seen[key] = SeenUpload(str(state), float(since), int(attempt))
        return seen
    return {}
