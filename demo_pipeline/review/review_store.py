"""Decisions in the store, `reviews/<demonstration>/<id>.json`, and removing a demonstration.

Reads and writes decisions, exchanges them as JSON Lines and CSV, and finds everything that holds a
demonstration. A document is written once and never changed: two reviewers at once lose nothing, and
every document is read once.
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
_DOCUMENTS = ("quarantine", REVIEWS, "annotations")  # each has a folder for each demonstration
_JSON_COLUMNS = ("judged", "value")
_REMEDY = "correct the line, or leave it out"


class Reviews:
    """The decisions in a store; each document is read once. Threads may share it.

    `refresh` reads new documents; the other methods answer from the documents read so far.

    Args:
        store: holds the decisions as documents.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # Demonstration → key → decision, or None for a damaged document.
        self._read: defaultdict[str, dict[str, Decision | None]] = defaultdict(dict)

    def refresh(self, demonstration: str = "") -> None:
        """Read new documents of a demonstration, or of all; forget the removed ones."""
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

    def of(self, demonstration: str) -> list[Decision]:
        """The decisions about a demonstration, in time order."""
        decisions = filter(None, list(self._read[demonstration].values()))
        return sorted(decisions, key=attrgetter("order"))

    def by_demonstration(self) -> dict[str, list[Decision]]:
        """Demonstration → the decisions about it, in time order."""
        decisions: defaultdict[str, list[Decision]] = defaultdict(list)
        for decision in self.all():
            decisions[decision.demonstration].append(decision)
        return dict(decisions)

    def all(self) -> list[Decision]:
        """Every decision, in time order."""
        decisions: list[Decision] = []
        for name in list(self._read):
            decisions += self.of(name)
        return sorted(decisions, key=attrgetter("order"))

    def damaged(self) -> list[str]:
        """Keys of documents that are not decisions."""
        keys = []
        for documents in list(self._read.values()):
            keys += [key for key, decision in list(documents.items()) if decision is None]
        return sorted(keys)

    def require_whole(self, demonstration: str) -> None:
        """Raise `DamagedDocument` if a decision about a demonstration is damaged.

        The damaged decision may mark a private part of a screenshot, which must not be published.
        """
        for key, decision in sorted(self._read[demonstration].items()):
            if decision is None:
                raise DamagedDocument(key)

    def add(self, decision: Decision) -> bool:
        """Write a decision unless its id is taken. Returns whether it was written."""
        key = f"{REVIEWS}/{decision.demonstration}/{decision.id}.json"
        written = self._store.add_document(key, sealed(decision))
        self._read[decision.demonstration][key] = decision if written else self._load(key)
        return written

    def written(self, demonstration: str, decision_id: str) -> Decision | None:
        """The decision with an id, about any version; None: it does not exist."""
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
        """Check a decision against the trajectory and write it; a repeated id changes nothing.

        Args:
            subject: the version that was judged.
            trajectory: its folder.
            author: who decides.
            kind: one of `VALUES`.
            value: the fields of `VALUES[kind]`.
            decision_id: 32 hex digits; empty: a new one.

        Raises:
            DecisionError: the decision is not valid; its sentences say why.
        """
        if existing := self.written(subject.id, decision_id):
            return existing
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
        if self.add(decision):
            return decision
        existing = self.written(subject.id, decision.id)
        if existing is None:
            raise DecisionError("id: the document under it is damaged")
        return existing

    def verdicts(self, versions: Mapping[str, VersionName]) -> dict[str, Judgement]:
        """Demonstration → its judgement, for each demonstration that was approved or rejected.

        While a decision is damaged, its demonstration counts as rejected, because the decision may
        be a rejection. Manifests are read only for decisions about other versions than these.

        Args:
            versions: demonstration → the version of its trajectory.
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
        """Step → the boxes that people judged in this version, each with whether it is private."""
        self.refresh(demonstration)
        self.require_whole(demonstration)
        decisions = self.of(demonstration)
        if not decisions:  # the usual case; `subject_of` takes a while
            return {}
        boxes: defaultdict[int, list[tuple[tuple[int, int, int, int], bool]]] = defaultdict(list)
        for decision in judge(decisions, subject_of(version, demonstration)).applied:
            if isinstance(decision.value, PrivateBox):
                box = decision.value
                boxes[box.step].append(((box.x, box.y, box.width, box.height), box.private))
        return dict(boxes)

    def _load(self, key: str) -> Decision | None:
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
    """The value of a decision, checked against the trajectory.

    Args:
        subject: the version that is judged.
        folder: of the trajectory.
        kind: of the decision.
        value: as the reviewer gave it.
        seen: earlier decisions about the demonstration.

    Raises:
        DecisionError: the step, node or decision does not exist, or the action is not valid.
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
    """How decisions refer to a committed trajectory; reads its manifest only."""
    files: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for file in version.manifest.files:
        if file.path.startswith("steps/"):
            files[int(file.path.split("/")[1])].append((file.path, file.sha256))
    steps = {
        step: sha256(repr(sorted(pairs)).encode()).hexdigest() for step, pairs in files.items()
    }
    return Subject(demonstration, version.id, dict(sorted(steps.items())))


def exchanged(decisions: Iterable[Decision], suffix: str) -> str:
    """Decisions as JSON Lines, or for the suffix `.csv` as a table with JSON in two columns."""
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
    """The decisions of a JSON Lines or CSV file (`.csv`), and a problem for each other line.

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
    """Yield line number and content: a string of JSON Lines, or the cells of a CSV row."""
    if suffix != ".csv":
        yield from enumerate(text.split("\n"), 1)
        return
    table = csv.DictReader(io.StringIO(text, newline=""), restval="")
    if "id" not in (table.fieldnames or ()):
        yield 1, {"": ""}  # no decision, so that the file's first line is named
        return
    for row in table:
        yield table.line_num, row


def _decision_of(line: str | dict[str, str], file: str) -> Decision:
    """The decision of a line; columns and cells that a spreadsheet added are ignored."""
    if isinstance(line, str):
        return Decision.model_validate(parse_json(line, file))
    members: dict[str, Any] = {name: line.get(name, "") for name in Decision.model_fields}
    for name in _JSON_COLUMNS:
        members[name] = parse_json(members[name], file)
    return Decision.model_validate(members)


def judged_decisions(store: Store, ids: Collection[str]) -> Iterator[tuple[Decision, str]]:
    """Yield each decision with `holds`, `replaced`, `stale`, `undone`, `undo` or `no trajectory`.

    A decision is `replaced` by a later one on the same subject.

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
            for decision in decisions:
                yield decision, "no trajectory"
            continue
        judgement = judge(decisions, subject_of(version, name))
        state_of = {decision.id: "stale" for decision in judgement.stale}
        state_of |= {decision.id: "undone" for decision in judgement.undone}
        state_of |= {decision.id: "replaced" for decision in judgement.replaced}
        for decision in decisions:
            state = "undo" if isinstance(decision.value, Undo) else "holds"
            yield decision, state_of.get(decision.id, state)


def import_decisions(store: Store, decisions: Iterable[Decision]) -> tuple[int, list[Problem]]:
    """Add decisions of another store.

    Decisions that apply to a trajectory of this store are checked like new ones.

    Returns:
        How many decisions were new, and a problem for each one that is not valid here.
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
    """Raise `DecisionError` if a decision applies to a trajectory here and is not valid for it."""
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
    """The outputs that hold a demonstration.

    Attributes:
        own: outputs that hold no other demonstration.
        datasets: outputs that were built from it, or from such a dataset.
    """

    own: frozenset[str]
    datasets: frozenset[str]


def outputs_of(store: Store, demonstration: str, stages: Collection[str]) -> HeldOutputs:
    """The outputs that `forget_demonstration` removes.

    Args:
        store: of the pipeline.
        demonstration: its id.
        stages: names of the stages whose outputs hold a single demonstration.
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
    sources: set[str] = {demonstration}  # the demonstration, then stages of datasets that hold it
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
    """Keys of the quarantine records, decisions and annotations of a demonstration."""
    keys = []
    for folder in _DOCUMENTS:
        keys += store.list_documents(f"{folder}/{demonstration}")
    return keys


def forget_demonstration(
    store: Store, demonstration: str, stages: Collection[str]
) -> tuple[list[str], list[str], int]:
    """Remove every version of a demonstration from a store, and every dataset that holds it.

    They are removed at once, without the grace period: readers of an old version get an error. The
    call can be repeated after a crash, because datasets are removed before the outputs and
    documents by which the demonstration is found.

    Args:
        store: of the pipeline.
        demonstration: its id.
        stages: see `outputs_of`.

    Raises:
        StorageError: the demonstration is being built, so that its outputs would come back, or the
            document of splits is damaged.

    Returns:
        Its outputs; the datasets that held it, which the next run builds again; and the number of
        removed quarantine records, decisions and annotations.
    """
    outputs = outputs_of(store, demonstration, stages)
    read_split_memory(store)  # raises before anything is removed if the document is damaged
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


def _holds(version: Version | None, sources: Collection[str], demonstration: str) -> bool:
    """Whether a dataset was built from one of the sources; an unreadable one counts as built."""
    if version is None:
        return True
    manifest = version.manifest
    linked = {link.output.partition("/")[2] for link in manifest.links.values()}
    return demonstration in linked or not manifest.inputs.keys().isdisjoint(sources)
