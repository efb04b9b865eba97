"""Where decisions are kept: `reviews/<demonstration>/<id>.json` in the store.

Belongs here: reading and writing them, what a decision is about, and their exchange as JSON Lines
and CSV. A document is written once and never changed, so two people at once lose nothing, and what
was read once need not be read again.
"""

import csv
import io
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from demo_pipeline.desktopd.reader import Trajectory, read_trajectory, step_folders
from demo_pipeline.desktopd.tree_validator import check_tree_bytes
from demo_pipeline.files.atomic_write import file_digest
from demo_pipeline.files.json_files import JsonFileError, json_bytes, parse_json, read_bytes
from demo_pipeline.problems import Problem
from demo_pipeline.review.decisions import (
    Decision,
    Judgement,
    Kind,
    Subject,
    by_demonstration,
    checked_action,
    faults,
    judge,
    next_time,
    step_digest,
)
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.names import is_safe_id
from demo_pipeline.store.store import Store
from demo_pipeline.store.version_manifest import Version, VersionName

REVIEWS = "reviews"
COLUMNS = ("id", "demonstration", "author", "time", "trajectory", "judged", "kind", "value")
_JSON_COLUMNS = ("judged", "value")
_READERS = 16


class DecisionError(ValueError):
    """A decision that cannot be made. `faults` are sentences that never repeat its text."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(faults))


class Reviews:
    """The decisions in a store, read once each; safe between threads.

    Args:
        store: has them, as documents.
        clock: the time of new decisions.
    """

    def __init__(
        self, store: Store, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._store, self._clock = store, clock
        self._read: dict[str, Decision | None] = {}

    def refresh(self, demonstration: str = "") -> None:
        """Read what was written since, of one demonstration or of all; forget what is gone."""
        folder = f"{REVIEWS}/{demonstration}" if demonstration else REVIEWS
        keys = set(self._store.list_documents(folder))
        known = [key for key in self._read if key.startswith(f"{folder}/")]
        for key in set(known) - keys:
            self._read.pop(key, None)
        fresh = sorted(keys - set(known))
        if len(fresh) == 1:
            self._read[fresh[0]] = self._load(fresh[0])
        elif fresh:
            with ThreadPoolExecutor(_READERS) as pool:
                self._read.update(zip(fresh, pool.map(self._load, fresh), strict=True))

    def of(self, demonstration: str) -> list[Decision]:
        """The known decisions about a demonstration, in time order."""
        return [one for one in self.all() if one.demonstration == demonstration]

    def all(self) -> list[Decision]:
        """Every known decision, in time order."""
        return sorted(filter(None, list(self._read.values())), key=lambda one: one.order)

    def damaged(self) -> list[str]:
        """Keys of documents that are no decisions."""
        return sorted(key for key, one in list(self._read.items()) if one is None)

    def add(self, decision: Decision) -> bool:
        """Write a decision, unless its id is taken; returns whether it was written."""
        key = f"{REVIEWS}/{decision.demonstration}/{decision.id}.json"
        written = self._store.add_document(key, json_bytes(decision))
        self._read[key] = decision if written else self._load(key)
        return written

    def make(  # noqa: PLR0917 - the members of a decision
        self,
        subject: Subject,
        trajectory: Path,
        author: str,
        kind: str,
        value: Any,
        decision_id: str = "",
    ) -> Decision:
        """Check a decision against the trajectory and write it. Twice with one id is once.

        Args:
            subject: the version that was judged.
            trajectory: its folder.
            author: who decides.
            kind: one of `Kind`.
            value: as the kind needs it.
            decision_id: 32 hex digits; empty: a new one.

        Raises:
            DecisionError: it cannot be made; the faults say why.
        """
        if known := self.written(subject.id, decision_id, kind, value):
            return known
        seen = self.of(subject.id)
        checked = checked_value(subject, trajectory, kind, value, seen)
        step = checked.get("step", checked.get("action", {}).get("step_index"))
        document = {
            "id": decision_id or uuid4().hex,
            "demonstration": subject.id,
            "author": author,
            "time": next_time(seen, self._clock()),
            "trajectory": subject.version,
            "judged": {} if kind == Kind.UNDO else subject.judged(step),
            "kind": kind,
            "value": checked,
        }
        try:
            decision = Decision.model_validate(document)
        except ValidationError as error:
            raise DecisionError(faults(error)) from None
        if not self.add(decision) and not self.written(subject.id, decision.id, kind, value):
            raise DecisionError(["id: the document under it is damaged"])
        return decision

    def written(
        self, demonstration: str, decision_id: str, kind: str, value: Any
    ) -> Decision | None:
        """The decision that was made under an id before, for whichever version; None: none was.

        Raises:
            DecisionError: it says something else.
        """
        self.refresh(demonstration)
        known = next((one for one in self.of(demonstration) if one.id == decision_id), None)
        if known and not (known.kind == kind and _says(known.value.model_dump(mode="json"), value)):
            raise DecisionError(["id: another decision has it"])
        return known

    def _load(self, key: str) -> Decision | None:
        data = self._store.get_document(key)
        try:
            decision = Decision.model_validate(parse_json(data or b"", key))
        except (JsonFileError, ValidationError):
            return None
        is_here = f"{REVIEWS}/{decision.demonstration}/{decision.id}.json" == key
        return decision if is_here else None


def _says(kept: Any, sent: Any) -> bool:
    """Whether a written value is what was sent; checking has completed it."""
    if isinstance(sent, dict):
        return isinstance(kept, dict) and all(_says(kept.get(key), sent[key]) for key in sent)
    return bool(kept == sent)


def checked_value(
    subject: Subject, folder: Path, kind: str, value: Any, seen: Sequence[Decision]
) -> dict[str, Any]:
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
    if not isinstance(value, dict):
        raise DecisionError(["value: Input should be an object"])
    if kind == Kind.ACTION:
        return {"action": _checked_action(subject, folder, value.get("action"))}
    if kind == Kind.UNDO and value.get("decision") not in {one.id for one in seen}:
        raise DecisionError(["decision: there is none with this id"])
    steps: list[Any] = [value.get(key) for key in ("step", "first", "last") if key in value]
    if any(step is not None and not _is_step(subject, step) for step in steps):
        raise DecisionError(["step: the trajectory has no such step"])
    return value


def _checked_action(subject: Subject, folder: Path, value: Any) -> dict[str, Any]:
    step = value.get("step_index") if isinstance(value, dict) else None
    if not _is_step(subject, step):
        raise DecisionError(["step: the trajectory has no such step"])
    found = next(one for one in read_trajectory(folder).steps if one.index == step)
    nodes, _ = check_tree_bytes(read_bytes(found.ui_tree, "ui_tree.json"), "ui_tree.json")
    action, wrong = checked_action(value, found.action, nodes)
    if action is None:
        raise DecisionError(wrong)
    return action.model_dump(mode="json")


def _is_step(subject: Subject, step: Any) -> bool:
    return type(step) is int and step in subject.steps


def subject_of(version: Version, demonstration: str) -> Subject:
    """What decisions about a committed trajectory are about; reads its manifest only."""
    digests = {file.path: file.sha256 for file in version.manifest.files}
    folders = {path.rpartition("/")[0] for path in digests if path.startswith("steps/")}
    steps = {int(folder[6:]): step_digest(digests, folder) for folder in folders}
    return Subject(demonstration, version.id, dict(sorted(steps.items())))


def subject_of_folder(trajectory: Trajectory, version: str) -> Subject:
    """The same for a folder, whose files are hashed."""
    steps = {}
    for number, folder in step_folders(trajectory.path):
        files = sorted(path for path in folder.iterdir() if path.is_file())
        digests = {f"steps/{folder.name}/{path.name}": file_digest(path).sha256 for path in files}
        steps[number] = step_digest(digests, f"steps/{folder.name}")
    return Subject(trajectory.id, version, steps)


def as_json_lines(decisions: Iterable[Decision]) -> Iterator[bytes]:
    """One line a decision, with a final newline each."""
    return (json_bytes(one, compact=True) for one in decisions)


def as_csv(decisions: Iterable[Decision]) -> str:
    """The same as a table with a header; `judged` and `value` are JSON."""
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    for one in decisions:
        row = one.model_dump(mode="json")
        row |= {name: json.dumps(row[name], ensure_ascii=False) for name in _JSON_COLUMNS}
        table.writerow({name: row[name] for name in COLUMNS})
    return text.getvalue()


def read_exchange(path: Path) -> tuple[list[Decision], list[Problem]]:
    """The decisions of a JSON Lines or CSV file (`.csv`), and the lines that hold none.

    Raises:
        JsonFileError: the file cannot be read.
    """
    text = read_bytes(path, path.name).decode("utf-8-sig", "replace")
    decisions, problems = [], []
    lines = _csv_lines(text) if path.suffix.lower() == ".csv" else enumerate(text.split("\n"), 1)
    for number, line in lines:
        if not line:
            continue
        try:
            decisions.append(Decision.model_validate(_value(line, path.name)))
        except (JsonFileError, ValidationError) as error:
            why = faults(error) if isinstance(error, ValidationError) else [error.message]
            message, remedy = "; ".join(why), "correct the line, or leave it out"
            problems.append(Problem("decision", path.name, message, number, remedy=remedy))
    return decisions, problems


def _csv_lines(text: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    table = csv.DictReader(io.StringIO(text, newline=""))
    if not set(COLUMNS) <= set(table.fieldnames or ()):
        yield 1, dict.fromkeys(COLUMNS, "")
    for row in table:
        yield table.line_num, row


def _value(line: str | Mapping[str, str], file: str) -> Any:
    if isinstance(line, str):
        return parse_json(line, file)
    return {
        name: parse_json(text or "", file) if name in _JSON_COLUMNS else text
        for name, text in line.items()
        if name in COLUMNS
    }


def verdicts(
    reviews: Reviews, store: Store, versions: Mapping[str, VersionName]
) -> dict[str, Judgement]:
    """Demonstration → what holds for its version, of those that somebody approved or rejected.

    Args:
        reviews: of the store; what was written since is read.
        store: has the manifests, which only decisions about other versions need.
        versions: demonstration → the version of its trajectory.
    """
    reviews.refresh()
    found = {}
    for name, decisions in by_demonstration(reviews.all()).items():
        if (version := versions.get(name)) is None:
            continue
        subject = Subject(name, version.id, {})
        if any(one.trajectory != version.id for one in decisions):
            current = store.current(version.output)
            subject = subject_of(current, name) if current else subject
        judgement = judge(decisions, subject)
        if judgement.verdict:
            found[name] = judgement
    return found


def judged_decisions(store: Store, ids: Collection[str]) -> Iterator[tuple[Decision, str]]:
    """Yield each decision with `holds`, `stale`, `undone` or `no trajectory`.

    Args:
        store: of the pipeline.
        ids: of demonstrations; empty: all.
    """
    reviews = Reviews(store)
    reviews.refresh()
    for name, decisions in by_demonstration(reviews.all()).items():
        if ids and name not in ids:
            continue
        version = store.current(f"trajectories/{name}")
        judgement = judge(decisions, subject_of(version, name)) if version else None
        for one in decisions:
            yield one, _state(one, judgement)


def _state(decision: Decision, judgement: Judgement | None) -> str:
    if judgement is None:
        return "no trajectory"
    if decision in judgement.undone:
        return "undone"
    return "stale" if decision in judgement.stale else "holds"


def import_decisions(store: Store, decisions: Iterable[Decision]) -> tuple[int, list[Problem]]:
    """Add decisions of another store; returns how many were new, and those that cannot be made.

    What applies to a trajectory of this store is checked like one made here.
    """
    reviews, added, refused = Reviews(store), 0, []
    reviews.refresh()
    for one in sorted(decisions, key=lambda one: one.order):
        try:
            _require_valid(store, one, reviews.of(one.demonstration))
            added += reviews.add(one)
        except (DecisionError, StorageError) as error:
            remedy = "correct the line, or leave it out"
            message = f"decision {one.id}: {error}"
            refused.append(Problem("decision", one.demonstration, message, remedy=remedy))
    return added, refused


def _require_valid(store: Store, decision: Decision, seen: Sequence[Decision]) -> None:
    if not is_safe_id(decision.demonstration):
        raise DecisionError(["demonstration: no demonstration has this id"])
    output = f"trajectories/{decision.demonstration}"
    version = store.current(output)
    if version is None or decision.kind is Kind.UNDO:
        return
    subject = subject_of(version, decision.demonstration)
    if subject.is_same(decision):
        with store.open(output) as (folder, _):
            value = decision.value.model_dump(mode="json")
            checked_value(subject, folder, decision.kind, value, seen)
