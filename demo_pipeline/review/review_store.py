"""Reads and writes reviewers' decisions in the store, and removes demonstrations from the store.

A decision is the document `reviews/<demonstration>/<id>.json`, which never changes. Therefore,
reviewers who work at the same time cannot overwrite each other's decisions. Decisions are exchanged
between stores as JSON Lines or CSV.
"""

import csv
import io
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from operator import attrgetter
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
# Folders of JSON documents in the store; each contains one folder per demonstration.
_DOCUMENT_FOLDERS = ("quarantine", REVIEWS, "annotations")
_JSON_COLUMNS = ("judged", "value")  # the columns of a CSV file that contain JSON
_REMEDY = "correct the line, or leave it out"


class Reviews:
    """Reads and adds the decisions in a store. Threads may share an instance.

    Decisions are cached. The methods `refresh`, `written`, `make`, `verdicts` and `private_boxes`
    read new documents from the store, and `add` writes a document. The others use only the cache.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # For each demonstration, maps document keys to decisions, or to None for damaged documents.
        self._read: defaultdict[str, dict[str, Decision | None]] = defaultdict(dict)

    def refresh(self, demonstration: str = "") -> None:
        """Reads new documents of a demonstration (empty means all), and forgets removed ones."""
        folder = f"{REVIEWS}/{demonstration}" if demonstration else REVIEWS
        keys = set(self._store.list_documents(folder))
        names = [demonstration] if demonstration else list(self._read)
        read_keys = set[str]()
        for name in names:
            read_keys.update(list(self._read[name]))
        for key in read_keys - keys:
            self._read[_demonstration_of(key)].pop(key, None)
        new_keys = sorted(keys - read_keys)
        for key, decision in zip(new_keys, in_parallel(self._load, new_keys), strict=True):
            self._read[_demonstration_of(key)][key] = decision

    def about(self, demonstration: str) -> list[Decision]:
        """Returns the decisions about a demonstration, in time order."""
        decisions = filter(None, list(self._read[demonstration].values()))
        return sorted(decisions, key=attrgetter("order"))

    def by_demonstration(self) -> dict[str, list[Decision]]:
        """Returns the decisions about each demonstration, in time order."""
        decisions: defaultdict[str, list[Decision]] = defaultdict(list)
        for decision in self.all():
            decisions[decision.demonstration].append(decision)
        return dict(decisions)

    def all(self) -> list[Decision]:
        """Returns the decisions about all demonstrations, in time order."""
        decisions: list[Decision] = []
        for name in list(self._read):
            decisions += self.about(name)
        return sorted(decisions, key=attrgetter("order"))

    def damaged(self) -> list[str]:
        """Returns the sorted keys of damaged documents."""
        keys = []
        for documents in list(self._read.values()):
            keys += [key for key, decision in list(documents.items()) if decision is None]
        return sorted(keys)

    def require_whole(self, demonstration: str) -> None:
        """Raises `DamagedDocument` if a decision about a demonstration is damaged.

        The damaged decision may have marked a part of a screenshot as private.
        """
        for key, decision in sorted(self._read[demonstration].items()):
            if decision is None:
                raise DamagedDocument(key)

    def add(self, decision: Decision) -> bool:
        """Writes a decision unless its id already exists, and returns whether it was written."""
        key = f"{REVIEWS}/{decision.demonstration}/{decision.id}.json"
        written = self._store.add_document(key, sealed(decision))
        self._read[decision.demonstration][key] = decision if written else self._load(key)
        return written

    def written(self, demonstration: str, decision_id: str) -> Decision | None:
        """Reads new documents and returns a decision, or None if it is missing or damaged."""
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
        """Checks a new decision against the trajectory, writes it, and returns it.

        If the id exists, the existing decision is returned instead.

        Args:
            subject: the judged version of the trajectory.
            trajectory: folder of this version.
            author: name of the person who decides.
            kind: a key of `VALUES`.
            value: the fields of `VALUES[kind]`.
            decision_id: 32 hex digits. If empty, a random id is chosen.

        Raises:
            DecisionError: the decision is not valid; the message says why.
        """
        if existing := self.written(subject.id, decision_id):
            return existing
        seen = self.about(subject.id)
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
        if self.add(decision):
            return decision
        existing = self.written(subject.id, decision.id)
        if existing is None:
            raise DecisionError("id: the stored decision with this id is damaged")
        return existing

    def verdicts(self, versions: Mapping[str, VersionName]) -> dict[str, Judgement]:
        """Maps the id of each approved or rejected demonstration to its judgement.

        A demonstration with a damaged decision counts as rejected, because the decision may have
        been a rejection.

        Args:
            versions: maps each demonstration to the version of its trajectory to judge.
        """
        self.refresh()
        judgements = {}
        for name, decisions in self.by_demonstration().items():
            if (version := versions.get(name)) is None:
                continue
            subject = Subject(name, version.id, {})
            about_others = any(decision.trajectory != version.id for decision in decisions)
            if about_others and (current := self._store.current(version.output)):
                subject = subject_of(current, name)
            if (judgement := judge(decisions, subject)).verdict:
                judgements[name] = judgement
        for key in self.damaged():
            judgements[_demonstration_of(key)] = UNREADABLE_JUDGEMENT
        return judgements

    def private_boxes(
        self, demonstration: str, version: Version
    ) -> dict[int, list[tuple[tuple[int, int, int, int], bool]]]:
        """Returns the boxes that people marked in the screenshots of this version.

        Returns:
            For each step number, pairs of a box and whether it is private, in the order of the
            decisions. A box is x, y, width and height in screenshot pixels.

        Raises:
            DamagedDocument: a decision about the demonstration is damaged.
        """
        self.refresh(demonstration)
        self.require_whole(demonstration)
        decisions = self.about(demonstration)
        if not decisions:  # avoids the slow `subject_of` in the usual case
            return {}
        boxes: defaultdict[int, list[tuple[tuple[int, int, int, int], bool]]] = defaultdict(list)
        for decision in judge(decisions, subject_of(version, demonstration)).applied:
            if isinstance(decision.value, PrivateBox):
                box = decision.value
                boxes[box.step].append(((box.x, box.y, box.width, box.height), box.private))
        return dict(boxes)

    def _load(self, key: str) -> Decision | None:
        """Reads a decision. Returns None if it is damaged or was stored under the wrong key."""
        data = self._store.get_document(key)
        try:
            decision = Decision.model_validate(unsealed(data or b"", key))
        except (DamagedDocument, ValidationError):
            return None
        if f"{REVIEWS}/{decision.demonstration}/{decision.id}.json" != key:
            return None
        return decision


def _demonstration_of(key: str) -> str:
    return key.split("/")[1]


def checked_value(
    subject: Subject, folder: Path, kind: str, value: Mapping[str, Any], seen: Iterable[Decision]
) -> Value:
    """Checks the value of a new decision against the trajectory, and fills in missing fields.

    Args:
        subject: the judged version of the trajectory.
        folder: folder of this version.
        value: the fields that the reviewer gave.
        seen: earlier decisions about the demonstration, which an undo may name.

    Raises:
        DecisionError: a field or an action is invalid, or a step, tree node or decision is missing.
    """
    no_step = DecisionError("step: the trajectory has no such step")
    if kind == "action":
        action = value.get("action")
        number = action.get("step_index") if isinstance(action, dict) else None
        if not isinstance(action, dict) or type(number) is not int or number not in subject.steps:
            raise no_step
        step = next(step for step in read_trajectory(folder).steps if step.index == number)
        nodes, _ = check_tree_bytes(read_bytes(step.ui_tree, "ui_tree.json"), "ui_tree.json")
        return ActionValue(action=completed_action(action, step.action, nodes))
    try:
        checked = VALUES.get(kind, Value).model_validate(value)
    except ValidationError as error:
        raise DecisionError(*faults(error)) from None
    if isinstance(checked, Undo) and checked.decision not in {decision.id for decision in seen}:
        raise DecisionError("decision: no decision has this id")
    if not steps_of(checked) <= subject.steps.keys():
        raise no_step
    return checked


def subject_of(version: Version, demonstration: str) -> Subject:
    """Returns the ids and hashes that decisions refer to, without opening the version's files."""
    files: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for file in version.manifest.files:
        if file.path.startswith("steps/"):
            files[int(file.path.split("/")[1])].append((file.path, file.sha256))
    steps = dict[int, str]()
    for step, pairs in sorted(files.items()):
        steps[step] = sha256(repr(sorted(pairs)).encode()).hexdigest()
    return Subject(demonstration, version.id, steps)


def exchanged(decisions: Iterable[Decision], suffix: str) -> str:
    """Formats decisions as CSV if the file's suffix is `.csv`, otherwise as JSON Lines."""
    if suffix != ".csv":
        return "".join(json_bytes(decision, compact=True).decode() for decision in decisions)
    text = io.StringIO()
    columns = tuple(Decision.model_fields)
    table = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    table.writeheader()
    for decision in decisions:
        row = decision.model_dump(mode="json")
        row |= {name: json.dumps(row[name], ensure_ascii=False) for name in _JSON_COLUMNS}
        table.writerow(row)
    return text.getvalue()


def read_exchange(path: Path) -> tuple[list[Decision], list[Problem]]:
    """Reads decisions from a `.csv` file, or from JSON Lines in any other file.

    Returns:
        The decisions, and a problem for each line that is not a valid decision.

    Raises:
        JsonFileError: the file cannot be read.
    """
    text = read_bytes(path, path.name).decode("utf-8-sig", "replace")
    decisions = []
    problems = []
    for number, line in _numbered_lines(text, path.suffix.lower()):
        if not line:
            continue
        try:
            decisions.append(_decision_of(line, path.name))
        except ValidationError as error:
            message = "; ".join(faults(error))
        except JsonFileError as error:
            message = error.message
        else:
            continue
        problems.append(Problem("decision", path.name, message, number, remedy=_REMEDY))
    return decisions, problems


def _numbered_lines(text: str, suffix: str) -> Iterator[tuple[int, str | dict[str, str]]]:
    """Yields each line with its number. A line of CSV is a mapping from column to cell."""
    if suffix != ".csv":
        yield from enumerate(text.split("\n"), 1)
        return
    table = csv.DictReader(io.StringIO(text, newline=""), restval="")
    if "id" not in (table.fieldnames or ()):
        yield 1, {"": ""}  # not a valid decision, so that the caller reports a problem in line 1
        return
    for row in table:
        yield table.line_num, row


def _decision_of(line: str | dict[str, str], file: str) -> Decision:
    """Converts a line to a decision, and ignores columns that a spreadsheet program added.

    Raises:
        ValidationError: the line is not a valid decision.
        JsonFileError: the line, or a cell that must contain JSON, is not JSON.
    """
    if isinstance(line, str):
        return Decision.model_validate(parse_json(line, file))
    members: dict[str, Any] = {name: line.get(name, "") for name in Decision.model_fields}
    for name in _JSON_COLUMNS:
        members[name] = parse_json(members[name], file)
    return Decision.model_validate(members)


def judged_decisions(store: Store, ids: Collection[str]) -> Iterator[tuple[Decision, str]]:
    """Yields each decision and its state for the published version of the trajectory.

    The states are:

    - `holds`: the decision applies.
    - `replaced`: a later decision applies instead, as defined by `Judgement.replaced`.
    - `stale`: the judged steps have changed.
    - `undone`: another decision took the decision back.
    - `undo`: the decision takes back another decision.
    - `no trajectory`: the demonstration has no published trajectory.

    Args:
        ids: ids of demonstrations; all if empty.
    """
    reviews = Reviews(store)
    reviews.refresh()
    for name, decisions in reviews.by_demonstration().items():
        if ids and name not in ids:
            continue
        version = store.current(f"trajectories/{name}")
        if version is None:
            for decision in decisions:
                yield decision, "no trajectory"
            continue
        judgement = judge(decisions, subject_of(version, name))
        replaced = judgement.replaced
        for decision in decisions:
            if decision in replaced:
                yield decision, "replaced"
            elif decision in judgement.undone:
                yield decision, "undone"
            elif decision in judgement.stale:
                yield decision, "stale"
            elif isinstance(decision.value, Undo):
                yield decision, "undo"
            else:
                yield decision, "holds"


def import_decisions(store: Store, decisions: Iterable[Decision]) -> tuple[int, list[Problem]]:
    """Adds decisions from another store. Decisions about this store's trajectories are checked.

    Returns:
        The number of added decisions, and a problem for each decision that could not be added.
    """
    reviews = Reviews(store)
    added = 0
    problems = []
    for decision in sorted(decisions, key=attrgetter("order")):
        try:
            _check_imported(store, decision)
            added += reviews.add(decision)
        except (DecisionError, StorageError) as error:
            message = f"decision {decision.id}: {error}"
            problems.append(Problem("decision", decision.demonstration, message, remedy=_REMEDY))
    return added, problems


def _check_imported(store: Store, decision: Decision) -> None:
    """Raises `DecisionError` if a decision is not valid for the trajectory that it applies to.

    A decision that applies to no trajectory of this store is accepted.
    """
    output = f"trajectories/{decision.demonstration}"
    if isinstance(decision.value, Undo):
        return
    version = store.current(output)
    if version is None:
        return
    subject = subject_of(version, decision.demonstration)
    if decision.trajectory == subject.version or subject.is_same(decision):
        folder = store.open(output)[0]
        checked_value(subject, folder, decision.kind, decision.value.model_dump(mode="json"), ())


@dataclass(frozen=True)
class HeldOutputs:
    """The outputs that contain a demonstration.

    Attributes:
        own: names of the outputs that contain only this demonstration.
        datasets: names of the datasets that were built from the demonstration, directly or through
            another dataset.
    """

    own: frozenset[str]
    datasets: frozenset[str]


def outputs_of(store: Store, demonstration: str, stages: Collection[str]) -> HeldOutputs:
    """Finds the outputs that contain a demonstration, so that they can be removed.

    Args:
        stages: names of the stages whose outputs each contain a single demonstration.
    """
    versions = list(store.versions())
    names = {name for name, _ in versions} | set(store.outputs())
    own = {name for name in names if name.partition("/")[2] == demonstration}
    datasets = []
    for name, version in versions:
        is_dataset = version is None or version.manifest.stage not in stages
        if name not in own and is_dataset:
            datasets.append((name, version))
    held: set[str] = set()
    # The demonstration, and the names of the stages whose datasets contain it.
    sources: set[str] = {demonstration}
    while True:
        new_names = set[str]()
        for name, version in datasets:
            if name not in held and _holds(version, sources, demonstration):
                new_names.add(name)
        if not new_names:
            return HeldOutputs(frozenset(own), frozenset(held))
        held |= new_names
        for name, version in datasets:
            if version and name in new_names:
                sources.add(version.manifest.stage)


def documents_of(store: Store, demonstration: str) -> list[str]:
    """Returns the keys of the quarantine records, decisions and annotations of a demonstration."""
    keys = []
    for folder in _DOCUMENT_FOLDERS:
        keys += store.list_documents(f"{folder}/{demonstration}")
    return keys


def forget_demonstration(
    store: Store, demonstration: str, stages: Collection[str]
) -> tuple[list[str], list[str], int]:
    """Removes every version of a demonstration from a store, and every dataset that contains it.

    The files are removed immediately, so a process that reads an old version gets an error.
    Datasets are removed first, because the demonstration's outputs are needed to find them. After a
    crash, the call can be repeated.

    Args:
        stages: names of the stages whose outputs each contain a single demonstration.

    Raises:
        StorageError: the demonstration is being built, so its outputs would be written again, or
            the document that remembers the splits is damaged.

    Returns:
        The names of the removed outputs of the demonstration, the names of the removed datasets,
        and the number of removed quarantine records, decisions and annotations.
    """
    outputs = outputs_of(store, demonstration, stages)
    read_split_memory(store)  # raises for a damaged document before anything is removed
    require_idle(store, demonstration)
    held = sorted(outputs.datasets)
    for name in (*held, *sorted(outputs.own | store.local.traces(demonstration))):
        store.erase(name)
    forget_split(store, demonstration)
    documents = sum(
        store.delete_documents(f"{folder}/{demonstration}") for folder in _DOCUMENT_FOLDERS
    )
    documents += store.delete_document(f"quarantine/{demonstration}.json")  # only in older stores
    return sorted(outputs.own), held, documents


def require_idle(store: Store, demonstration: str) -> None:
    """Raises `StorageError` if a process on this machine is building the demonstration."""
    if any(map(store.local.is_building, store.local.traces(demonstration))):
        raise StorageError(
            f"{demonstration} is being processed; wait until its run has ended, then forget it"
        )


def _holds(version: Version | None, sources: Collection[str], demonstration: str) -> bool:
    """Returns whether a dataset may contain a demonstration.

    Args:
        version: the dataset's version, or None if its manifest cannot be read. The result is then
            True.
        sources: the id of the demonstration, and the names of stages whose datasets contain the
            demonstration. A dataset contains the demonstration if it was built from one of these
            sources.
        demonstration: the id of the demonstration. A dataset also contains the demonstration if it
            links to one of the demonstration's outputs.
    """
    if version is None:
        return True
    manifest = version.manifest
    linked = {link.output.partition("/")[2] for link in manifest.links.values()}
    return demonstration in linked or not manifest.inputs.keys().isdisjoint(sources)
