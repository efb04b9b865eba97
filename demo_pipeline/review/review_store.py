"""Where decisions are kept: `reviews/<demonstration>/<id>.json` in the store.

Belongs here: reading and writing them, what a decision is about, their exchange as JSON Lines and
CSV, and removing a demonstration with all that is kept about it. A document is written once and
never changed, so two people at once lose nothing, and what was read once need not be read again.
"""

import csv
import io
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from demo_pipeline.desktopd.trajectory_reader import read_trajectory
from demo_pipeline.desktopd.validator import check_tree_bytes
from demo_pipeline.files.json_files import JsonFileError, json_bytes, parse_json, read_bytes
from demo_pipeline.problems import Problem
from demo_pipeline.review.decisions import (
    UNREADABLE_JUDGEMENT,
    VALUES,
    ActionValue,
    Decision,
    DecisionError,
    Judgement,
    PrivateBox,
    Subject,
    Undo,
    Value,
    completed_action,
    faults,
    judge,
    next_time,
    steps_of,
)
from demo_pipeline.store.bucket import in_parallel
from demo_pipeline.store.documents import DamagedDocument, sealed, unsealed
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.split_memory import forget_split, read_split_memory
from demo_pipeline.store.store import Store
from demo_pipeline.store.versions import Version, VersionName

REVIEWS = "reviews"
_DOCUMENTS = ("quarantine", REVIEWS, "annotations")  # folders with some of a demonstration
_JSON_COLUMNS = ("judged", "value")
_REMEDY = "correct the line, or leave it out"


class Reviews:
    """The decisions in a store, read once each; safe between threads.

    Args:
        store: has them, as documents.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # Demonstration → key → decision: what is asked of one must not look at all others.
        self._read: defaultdict[str, dict[str, Decision | None]] = defaultdict(dict)

    def refresh(self, demonstration: str = "") -> None:
        """Read what was written since, of one demonstration or of all; forget what is gone."""
        folder = f"{REVIEWS}/{demonstration}" if demonstration else REVIEWS
        keys = set(self._store.list_documents(folder))
        names = [demonstration] if demonstration else list(self._read)
        known = {key for name in names for key in list(self._read[name])}
        for key in known - keys:
            self._read[_demonstration_of(key)].pop(key, None)
        fresh = sorted(keys - known)
        for key, decision in zip(fresh, in_parallel(self._load, fresh), strict=True):
            self._read[_demonstration_of(key)][key] = decision

    def of(self, demonstration: str) -> list[Decision]:
        """The known decisions about a demonstration, in time order."""
        known = filter(None, list(self._read[demonstration].values()))
        return sorted(known, key=lambda one: one.order)

    def by_demonstration(self) -> dict[str, list[Decision]]:
        """Demonstration → the known decisions about it, in time order."""
        found: defaultdict[str, list[Decision]] = defaultdict(list)
        for one in self.all():
            found[one.demonstration].append(one)
        return dict(found)

    def all(self) -> list[Decision]:
        """Every known decision, in time order."""
        known = (one for name in list(self._read) for one in self.of(name))
        return sorted(known, key=lambda one: one.order)

    def damaged(self) -> list[str]:
        """Keys of documents that are not decisions."""
        known = (pair for of in list(self._read.values()) for pair in list(of.items()))
        return sorted(key for key, one in known if one is None)

    def require_whole(self, demonstration: str) -> None:
        """Let nobody use the decisions about a demonstration without one that is damaged.

        It may be a part of a picture that is private. Raises `DamagedDocument`.
        """
        for key, decision in sorted(self._read[demonstration].items()):
            if decision is None:
                raise DamagedDocument(key)

    def add(self, decision: Decision) -> bool:
        """Write a decision, unless its id is taken; returns whether it was written."""
        key = f"{REVIEWS}/{decision.demonstration}/{decision.id}.json"
        written = self._store.add_document(key, sealed(decision))
        self._read[decision.demonstration][key] = decision if written else self._load(key)
        return written

    def written(self, demonstration: str, decision_id: str) -> Decision | None:
        """The decision that was made under an id before, for whichever version; None: none was."""
        self.refresh(demonstration)
        return self._read[demonstration].get(f"{REVIEWS}/{demonstration}/{decision_id}.json")

    def make(  # noqa: PLR0917 - the members of a decision
        self,
        subject: Subject,
        trajectory: Path,
        author: str,
        kind: str,
        value: Mapping[str, Any],
        decision_id: str = "",
    ) -> Decision:
        """Check a decision against the trajectory and write it. Twice with one id is once.

        Args:
            subject: the version that was judged.
            trajectory: its folder.
            author: who decides.
            kind: one of `VALUES`.
            value: as the kind needs it.
            decision_id: 32 hex digits; empty: a new one.

        Raises:
            DecisionError: it cannot be made; the faults say why.
        """
        if known := self.written(subject.id, decision_id):
            return known
        seen = self.of(subject.id)
        document = {
            "id": decision_id or uuid4().hex,
            "demonstration": subject.id,
            "author": author,
            "time": next_time(seen, datetime.now(UTC)),
            "trajectory": subject.version,
            "judged": {},
            "kind": kind,
            "value": checked_value(subject, trajectory, kind, value, seen),
        }
        try:
            decision = Decision.model_validate(document)
        except ValidationError as error:
            raise DecisionError(*faults(error)) from None
        decision = decision.model_copy(update={"judged": subject.judged(decision)})
        written = decision if self.add(decision) else self.written(subject.id, decision.id)
        if written is None:
            raise DecisionError("id: the document under it is damaged")
        return written

    def verdicts(self, versions: Mapping[str, VersionName]) -> dict[str, Judgement]:
        """Demonstration → what holds, of those that somebody approved or rejected.

        While a decision is damaged, its demonstration counts as rejected, which it may be. Only
        decisions about other versions than these need the manifests.

        Args:
            versions: demonstration → the version of its trajectory.
        """
        self.refresh()
        found = {}
        for name, decisions in self.by_demonstration().items():
            if (version := versions.get(name)) is None:
                continue
            subject = Subject(name, version.id, {})
            others = any(one.trajectory != version.id for one in decisions)
            if others and (current := self._store.current(version.output)):
                subject = subject_of(current, name)
            if (judgement := judge(decisions, subject)).verdict:
                found[name] = judgement
        return found | {_demonstration_of(key): UNREADABLE_JUDGEMENT for key in self.damaged()}

    def private_boxes(
        self, demonstration: str, version: Version
    ) -> dict[int, list[tuple[tuple[int, int, int, int], bool]]]:
        """Step → each box that people judged in this version of the trajectory, and how."""
        self.refresh(demonstration)
        self.require_whole(demonstration)
        decisions = self.of(demonstration)
        if not decisions:  # asked of thousands; the subject takes a while
            return {}
        found: defaultdict[int, list[tuple[tuple[int, int, int, int], bool]]] = defaultdict(list)
        for one in judge(decisions, subject_of(version, demonstration)).applied:
            if isinstance(one.value, PrivateBox):
                box = one.value
                found[box.step].append(((box.x, box.y, box.width, box.height), box.private))
        return dict(found)

    def _load(self, key: str) -> Decision | None:
        data = self._store.get_document(key)
        try:
            decision = Decision.model_validate(unsealed(data or b"", key))
        except (DamagedDocument, ValidationError):
            return None
        is_here = f"{REVIEWS}/{decision.demonstration}/{decision.id}.json" == key
        return decision if is_here else None


def _demonstration_of(key: str) -> str:
    return key.split("/")[1]


def checked_value(
    subject: Subject, folder: Path, kind: str, value: Mapping[str, Any], seen: Iterable[Decision]
) -> Value:
    """The value of a decision as it is written.

    Args:
        subject: what is judged.
        folder: of the trajectory.
        kind: of the decision.
        value: as the reviewer gave it.
        seen: the decisions about the demonstration.

    Raises:
        DecisionError: there is no such step, node or decision, or the action is not valid.
    """
    no_step = DecisionError("step: the trajectory has no such step")
    if kind == "action":
        action = value.get("action")
        number = action.get("step_index") if isinstance(action, dict) else None
        if not isinstance(action, dict) or type(number) is not int or number not in subject.steps:
            raise no_step
        step = next(one for one in read_trajectory(folder).steps if one.index == number)
        nodes, _ = check_tree_bytes(read_bytes(step.ui_tree, "ui_tree.json"), "ui_tree.json")
        return ActionValue(action=completed_action(action, step.action, nodes))
    try:
        checked = VALUES.get(kind, Value).model_validate(value)
    except ValidationError as error:
        raise DecisionError(*faults(error)) from None
    if isinstance(checked, Undo) and checked.decision not in {one.id for one in seen}:
        raise DecisionError("decision: there is none with this id")
    if not steps_of(checked) <= subject.steps.keys():
        raise no_step
    return checked


def subject_of(version: Version, demonstration: str) -> Subject:
    """What decisions about a committed trajectory are about; reads its manifest only."""
    files: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for file in version.manifest.files:
        if file.path.startswith("steps/"):
            files[int(file.path.split("/")[1])].append((file.path, file.sha256))
    steps = {
        step: sha256(repr(sorted(pairs)).encode()).hexdigest() for step, pairs in files.items()
    }
    return Subject(demonstration, version.id, dict(sorted(steps.items())))


def exchanged(decisions: Iterable[Decision], suffix: str) -> str:
    """Decisions as JSON Lines; for the suffix `.csv` as a table, with JSON in two columns."""
    if suffix != ".csv":
        return "".join(json_bytes(one, compact=True).decode() for one in decisions)
    text = io.StringIO()
    columns = tuple(Decision.model_fields)
    table = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    table.writeheader()
    for one in decisions:
        row = one.model_dump(mode="json")
        row |= {name: json.dumps(row[name], ensure_ascii=False) for name in _JSON_COLUMNS}
        table.writerow(row)
    return text.getvalue()


def read_exchange(path: Path) -> tuple[list[Decision], list[Problem]]:
    """The decisions of a JSON Lines or CSV file (`.csv`), and the lines that hold none.

    Raises:
        JsonFileError: the file cannot be read.
    """
    text = read_bytes(path, path.name).decode("utf-8-sig", "replace")
    lines: Iterable[tuple[int, Any]] = enumerate(text.split("\n"), 1)
    if path.suffix.lower() == ".csv":
        table = csv.DictReader(io.StringIO(text, newline=""), restval="")
        named = "id" in (table.fieldnames or ())
        lines = ((table.line_num, row) for row in table) if named else [(1, {"": ""})]
    decisions = []
    problems = []
    for number, line in lines:
        try:
            value = line
            if isinstance(line, dict):  # a spreadsheet may have columns and cells of its own
                value = {name: line.get(name, "") for name in Decision.model_fields}
                value |= {name: parse_json(value[name], path.name) for name in _JSON_COLUMNS}
            if line:
                value = parse_json(line, path.name) if isinstance(line, str) else value
                decisions.append(Decision.model_validate(value))
        except (JsonFileError, ValidationError) as error:
            why = faults(error) if isinstance(error, ValidationError) else [error.message]
            message = "; ".join(why)
            problems.append(Problem("decision", path.name, message, number, remedy=_REMEDY))
    return decisions, problems


def judged_decisions(store: Store, ids: Collection[str]) -> Iterator[tuple[Decision, str]]:
    """Yield each decision with `holds`, `replaced`, `stale`, `undone`, `undo` or `no trajectory`.

    A later decision on the same replaces an earlier one; an undo holds for nothing by itself.

    Args:
        store: of the pipeline.
        ids: of demonstrations; empty: all.
    """
    reviews = Reviews(store)
    reviews.refresh()
    for name, decisions in reviews.by_demonstration().items():
        if ids and name not in ids:
            continue
        version = store.current(f"trajectories/{name}")
        if version is None:
            yield from ((one, "no trajectory") for one in decisions)
            continue
        judgement = judge(decisions, subject_of(version, name))
        states = dict.fromkeys((one.id for one in judgement.stale), "stale")
        states |= dict.fromkeys((one.id for one in judgement.undone), "undone")
        states |= {one.id: "undo" for one in decisions if isinstance(one.value, Undo)}
        states |= dict.fromkeys((one.id for one in judgement.replaced), "replaced")
        yield from ((one, states.get(one.id, "holds")) for one in decisions)


def import_decisions(store: Store, decisions: Iterable[Decision]) -> tuple[int, list[Problem]]:
    """Add decisions of another store; returns how many were new, and those that cannot be made.

    What applies to a trajectory of this store is checked like one made here.
    """
    reviews = Reviews(store)
    added = 0
    refused = []
    for one in sorted(decisions, key=lambda one: one.order):
        try:
            output = f"trajectories/{one.demonstration}"
            version = None if isinstance(one.value, Undo) else store.current(output)
            subject = subject_of(version, one.demonstration) if version else None
            if subject and (one.trajectory == subject.version or subject.is_same(one)):
                folder = store.open(output)[0]
                value = one.value.model_dump(mode="json")
                checked_value(subject, folder, one.kind, value, ())
            added += reviews.add(one)
        except (DecisionError, StorageError) as error:
            message = f"decision {one.id}: {error}"
            refused.append(Problem("decision", one.demonstration, message, remedy=_REMEDY))
    return added, refused


@dataclass(frozen=True)
class HeldOutputs:
    """The outputs that hold a demonstration.

    Attributes:
        own: outputs that hold no other demonstration.
        datasets: outputs that were built from it, or from a dataset that was.
    """

    own: frozenset[str]
    datasets: frozenset[str]


def outputs_of(store: Store, demonstration: str, stages: Collection[str]) -> HeldOutputs:
    """The outputs that forgetting a demonstration removes.

    Args:
        store: of the pipeline.
        demonstration: its id.
        stages: names of the stages of a demonstration, whose outputs hold no other one.
    """
    versions = list(store.versions())
    names = {name for name, _ in versions} | set(store.outputs())
    own = {name for name in names if name.partition("/")[2] == demonstration}
    others = [(name, version) for name, version in versions if name not in own]
    datasets = [pair for pair in others if pair[1] is None or pair[1].manifest.stage not in stages]
    held: set[str] = set()
    made_of: set[str] = {demonstration}
    while fresh := {name for name, one in datasets if _holds(one, made_of, demonstration)} - held:
        held |= fresh
        made_of |= {one.manifest.stage for name, one in datasets if one and name in fresh}
    return HeldOutputs(frozenset(own), frozenset(held))


def documents_of(store: Store, demonstration: str) -> list[str]:
    """Keys of the quarantine records, decisions and annotations of a demonstration."""
    keys = []
    for folder in _DOCUMENTS:
        keys += store.list_documents(f"{folder}/{demonstration}")
    return keys


def forget_demonstration(
    store: Store, demonstration: str, stages: Collection[str]
) -> tuple[list[str], list[str], int]:
    """Remove a demonstration from a store, with all versions, and every dataset that holds it.

    It goes at once, without the grace period: who still reads it gets an error. After a kill it can
    be repeated: what holds the demonstration goes before that by which it is found.

    Args:
        store: of the pipeline.
        demonstration: its id.
        stages: see `outputs_of`.

    Raises:
        StorageError: it is being built; what a build had read would come back. Or the document of
            splits is damaged.

    Returns:
        Its outputs; the datasets that held it, or were made of one that did, which the next run
        builds again; and how many quarantine records, decisions and annotations went.
    """
    outputs = outputs_of(store, demonstration, stages)
    read_split_memory(store)  # a damaged one stops this before anything is removed
    require_idle(store, demonstration)
    held = sorted(outputs.datasets)
    for name in (*held, *sorted(outputs.own | store.local.traces(demonstration))):
        store.erase(name)
    forget_split(store, demonstration)
    documents = sum(store.delete_documents(f"{folder}/{demonstration}") for folder in _DOCUMENTS)
    documents += store.delete_document(f"quarantine/{demonstration}.json")  # of older stores
    return sorted(outputs.own), held, documents


def require_idle(store: Store, demonstration: str) -> None:
    """Raise `StorageError` while a process of this machine builds the demonstration."""
    if any(map(store.local.is_building, store.local.traces(demonstration))):
        raise StorageError(
            f"{demonstration} is being processed; wait until its run has ended, then forget it"
        )


def _holds(version: Version | None, made_of: Collection[str], demonstration: str) -> bool:
    """Whether a dataset was built from one of these; one that cannot be read may have been."""
    if version is None:
        return True
    manifest = version.manifest
    linked = (link.output.partition("/")[2] for link in manifest.links.values())
    links = demonstration in linked
    return links or not manifest.inputs.keys().isdisjoint(made_of)
