"""Which uploads are whole and new, so that a run is requested for each; no knowledge of Dagster.

Belongs here: one listing as states, and the decision about each id. The store says what is built or
refused, the caller what is in work; what is remembered between two looks is only of uploads that
are not still yet, or not in the store yet.
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

_SECONDS_PER_LOOK = 20.0  # for questions to the store; the rest is asked at the next look
NO_END = (False, 0.0)  # of a run: no person cancelled it, and it ended long ago
STOPPED = -1  # the attempt of an upload whose run a person cancelled: not requested again


class Listed(NamedTuple):
    """One demonstration in a listing.

    `state` changes with any of its files, and of its decisions by people; `is_whole`: all files are
    there; `is_marked`: the marker of completeness is.
    """

    state: str
    is_whole: bool
    is_marked: bool


class Seen(NamedTuple):
    """What is remembered of an upload.

    Since `since` (epoch seconds) it is as it is. `attempt`: the number of runs that were requested
    for it as it is, or `STOPPED`.
    """

    state: str
    since: float
    attempt: int


@dataclass(frozen=True)
class Request:
    """A run that is to be requested. `reason`: new, changed or again."""

    id: str
    state: str
    attempt: int
    reason: str

    @property
    def run_key(self) -> str:
        """The same run is never launched twice."""
        return f"{self.id}@{self.state}#{self.attempt}"


@dataclass(frozen=True)
class Look:
    """What one look gave.

    `seen` is to be remembered, `unstable` are not still yet, and `misnamed` folders are refused.
    """

    requests: Sequence[Request]
    seen: Mapping[str, Seen]
    unstable: int
    misnamed: int = 0


def list_uploads(workspace: Workspace) -> dict[str, Listed]:
    """Every folder in the uploads, by one listing of them and one of people's decisions.

    Raises:
        StorageError: the uploads or the store cannot be listed.
    """
    decisions: defaultdict[str, list[str]] = defaultdict(list)
    for key in workspace.store.list_documents(REVIEWS):
        match key.split("/"):
            case [_, name, file]:  # any other was put there by a person
                decisions[name].append(file.removesuffix(".json"))
    marker = workspace.settings.discovery.complete_marker
    folders = workspace.uploads.objects.by_folder()
    return {key: _listed(files, decisions.get(key, ()), marker) for key, files in folders.items()}


def _listed(files: Mapping[str, ObjectInfo], decisions: Sequence[str], marker: str) -> Listed:
    state = listing_fingerprint(files)
    if decisions:
        state = hashlib.sha256(f"{state} {_decided(decisions)}".encode()).hexdigest()
    is_whole = set(RECORDING_FILES) <= files.keys()
    return Listed(state[:16], is_whole, bool(marker) and marker in files)


def _decided(ids: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()


def decide(  # noqa: PLR0917 - what is known, from six places
    listed: Mapping[str, Listed],
    seen: Mapping[str, Seen],
    settled: "Settled",
    ends: Mapping[str, tuple[bool, float]],
    in_work: Collection[str],
    settings: DiscoverySettings,
) -> Look:
    """What is to be requested now.

    Args:
        listed: every demonstration in the uploads.
        seen: what the look before has remembered.
        settled: answers whether the store has all of an upload as it is.
        ends: of those with a request before: whether a person cancelled its run, when it ended.
        in_work: those with a run that is queued or running.
        settings: of discovery.
    """
    now = time.time()
    requests = list[Request]()
    kept = dict[str, Seen]()
    unstable = 0
    usable = settled.usable(listed)
    for key, one in listed.items():
        if not (one.is_whole and key in usable) or settled.is_known(key, one.state):
            continue
        before = seen.get(key)
        if before is None and settled.ask(key, one.state) is not False:
            continue
        same = before is not None and before.state == one.state
        mine = before if before and same else Seen(one.state, now, 0)
        kept[key] = mine
        if key in in_work or mine.attempt == STOPPED:
            continue
        marked = one.is_marked and before is None
        if now - mine.since < settings.stable_seconds and not marked:
            unstable += 1
        elif settled.ask(key, one.state):
            del kept[key]
        elif mine.attempt and ends.get(key, NO_END)[0]:
            kept[key] = mine._replace(attempt=STOPPED)
        elif not mine.attempt or now - ends.get(key, NO_END)[1] > retry_pause(mine.attempt):
            kept[key] = mine._replace(attempt=mine.attempt + 1)
            reason = "again" if mine.attempt else settled.reason(key)
            requests.append(Request(key, mine.state, mine.attempt + 1, reason))
    return Look(requests, kept, unstable, len(listed) - len(usable))


class Settled:
    """Answers whether the store has every output, or a quarantine record, of an upload as it is.

    By whatever code: new code is no reason to process every upload again. One lives as long as the
    process that looks: what was answered yes is asked again only when the upload or its quarantine
    record changed, or when a dataset left the demonstration out because of a damaged output.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, str]] = {}  # id → state, its quarantine records
        self._records: dict[str, str] = {}

    def begin(self, workspace: Workspace) -> None:
        """Begin a look."""
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
        """Those of the uploads' names that can be ids."""
        return self._workspace.uploads.usable(names)

    def is_known(self, key: str, state: str) -> bool:
        """Whether that was answered yes before."""
        return self._known.get(key) == (state, self._records.get(key, ""))

    def forget(self, keys: Collection[str]) -> None:
        """Ask again for these."""
        for key in keys:
            self._known.pop(key, None)

    def ask(self, key: str, state: str) -> bool | None:
        """The answer; None when it has to wait for the next look."""
        if time.monotonic() > self._until:
            return None
        quarantined = key in self._records
        answer = is_settled(self._workspace, key, quarantined=quarantined, graph=self._graph)
        if answer:
            self._known[key] = (state, self._records.get(key, ""))
        return answer

    def reason(self, key: str) -> str:
        """Whether it is new or changed."""
        built = self._workspace.store.current(RAW_RECORDINGS_STAGE.output(key))
        return "new" if built is None and key not in self._records else "changed"


def is_settled(
    workspace: Workspace,
    demonstration: str,
    *,
    quarantined: bool = True,
    graph: Graph | None = None,
) -> bool:
    """Whether the store has every output, or a quarantine record, of the present upload.

    Args:
        workspace: store and uploads.
        demonstration: its id.
        quarantined: it may have a quarantine record.
        graph: of earlier questions, which trusts times; None: a new one.
    """
    graph = graph or Graph(workspace, trusts_times=True)
    states = demonstration_states(graph, demonstration)
    is_present = all(map(is_of_present_inputs, states))
    graph.forget_states()
    if is_present:
        return True
    record = read_quarantine(workspace.store, demonstration) if quarantined else None
    return record is not None and record.fingerprint == workspace.uploads.identity(demonstration)


def stuck(seen: Mapping[str, Seen]) -> Iterator[str]:
    """Yield the ids that were requested before and are not in the store yet."""
    return (key for key, one in seen.items() if one.attempt > 0)


def as_plain(seen: Mapping[str, Seen]) -> dict[str, list[str | float | int]]:
    """What is remembered as JSON values; `from_plain` reads it."""
    return {key: [one.state, round(one.since, 1), one.attempt] for key, one in seen.items()}


def from_plain(value: object) -> dict[str, Seen]:
    """What `as_plain` wrote; nothing of what a person wrote."""
    if not isinstance(value, dict):
        return {}
    with suppress(TypeError, ValueError):
        return {key: Seen(str(s), float(t), int(n)) for key, (s, t, n) in value.items()}
    return {}
