"""Which demonstrations a run is for, by its tags, and how it ended for each of them.

Belongs here: reading and writing those tags. A run of one demonstration has the tag of its
partition; a batch run has a short tag per member, to be found by, and one list of all of them.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Literal

import dagster as dg

from demo_pipeline.defs.tags import (
    BATCH_OUTCOMES_TAG,
    BATCH_TAG,
    FINGERPRINT_TAG,
    MEMBER_TAG_PREFIX,
    MEMBERS_TAG,
    OUTCOME_TAG,
    PARTITION_NAME_TAG,
    RUN_KEY_TAG,
    WAITING_OUTCOME,
    WAITING_TAG,
)

MemberStatus = Literal["failed", "superseded", "waiting", "crashed"]
_MEMBER = "yes"
_KEY_LENGTH = 24  # hex digits of a member's tag; names of tags are short


@dataclass(frozen=True, slots=True)
class BatchMember:
    """One demonstration of a batch run.

    Attributes:
        demonstration: its id.
        fingerprint: of the listing of the upload that the run is for; empty: the present one.
        run_key: that discovery requested; empty when it did not.
    """

    demonstration: str
    fingerprint: str = ""
    run_key: str = ""


@dataclass(frozen=True, slots=True)
class MemberOutcome:
    """How a batch run ended for a member that is not done, and why in plain words."""

    status: MemberStatus
    reason: str = ""


def batch_tags(members: Sequence[BatchMember]) -> dict[str, str]:
    """The tags of a run for these demonstrations."""
    listed = json.dumps([astuple(member) for member in members], separators=(",", ":"))
    each = {_tag_of(member.demonstration): _MEMBER for member in members}
    return {BATCH_TAG: str(len(members)), MEMBERS_TAG: listed, **each}


def members_of(run: dg.DagsterRun) -> list[BatchMember]:
    """The members of a batch run; empty for any other run."""
    text = run.tags.get(MEMBERS_TAG)
    return [BatchMember(*values) for values in json.loads(text)] if text else []


def demonstrations_of(run: dg.DagsterRun) -> list[str]:
    """The ids of the demonstrations that a run is for; empty when they are not in its tags."""
    key = run.tags.get(PARTITION_NAME_TAG)
    return [member.demonstration for member in members_of(run)] if key is None else [key]


def launched_for(run: dg.DagsterRun, demonstration: str) -> str | None:
    """Fingerprint of the upload that a run was launched for; None without one."""
    found = _member(run, demonstration)
    return found.fingerprint or None if found else run.tags.get(FINGERPRINT_TAG)


def records_of(instance: dg.DagsterInstance, demonstration: str, limit: int) -> list[dg.RunRecord]:
    """The newest runs for a demonstration, batch runs included, newest first."""
    found = [
        record
        for tags in ({PARTITION_NAME_TAG: demonstration}, {_tag_of(demonstration): _MEMBER})
        for record in instance.get_run_records(dg.RunsFilter(tags=tags), limit=limit)
    ]
    return sorted(found, key=lambda record: record.storage_id, reverse=True)[:limit]


def has_run_key(instance: dg.DagsterInstance, run_key: str) -> bool:
    """Whether a run with this key exists, or a batch run that serves it."""
    if instance.get_run_ids(dg.RunsFilter(tags={RUN_KEY_TAG: run_key}), limit=1):
        return True
    demonstration = run_key.partition("@")[0]
    runs = instance.get_runs(dg.RunsFilter(tags={_tag_of(demonstration): _MEMBER}))
    members = (_member(run, demonstration) for run in runs)
    return any(member is not None and member.run_key == run_key for member in members)


def note_outcomes(
    instance: dg.DagsterInstance, run_id: str, outcomes: Mapping[str, MemberOutcome]
) -> None:
    """Write down which members are not done, at the end of the run; the others are done.

    The id tells this tag from one that Dagster copied from the run before.
    """
    values = {key: astuple(outcome) for key, outcome in sorted(outcomes.items())}
    text = json.dumps({"run": run_id, "not_done": values}, separators=(",", ":"))
    reasons = [one.reason for one in outcomes.values() if one.status == WAITING_OUTCOME]
    waits = {OUTCOME_TAG: WAITING_OUTCOME, WAITING_TAG: reasons[0]} if reasons else {}
    instance.add_run_tags(run_id, {BATCH_OUTCOMES_TAG: text, **waits})


def noted_outcomes(run: dg.DagsterRun) -> dict[str, MemberOutcome] | None:
    """The members that are not done; None when the run came to no end."""
    values = json.loads(run.tags.get(BATCH_OUTCOMES_TAG, "{}"))
    if values.get("run") != run.run_id:
        return None
    return {key: MemberOutcome(*outcome) for key, outcome in values["not_done"].items()}


def is_waiting(run: dg.DagsterRun, demonstration: str) -> bool:
    """Whether a run ended because something passing stopped it or this member of it."""
    noted = noted_outcomes(run)
    if noted is not None:
        return demonstration in noted and noted[demonstration].status == WAITING_OUTCOME
    return run.tags.get(OUTCOME_TAG) == WAITING_OUTCOME and not run.is_success


def batch_run_key(run_keys: Iterable[str]) -> str:
    """The key of a batch run: equal for equal members."""
    digest = hashlib.sha256("\n".join(sorted(run_keys)).encode()).hexdigest()
    return f"batch@{digest[:32]}"


def _member(run: dg.DagsterRun, demonstration: str) -> BatchMember | None:
    found = (member for member in members_of(run) if member.demonstration == demonstration)
    return next(found, None)


def _tag_of(demonstration: str) -> str:
    digest = hashlib.sha256(demonstration.encode()).hexdigest()[:_KEY_LENGTH]
    return f"{MEMBER_TAG_PREFIX}_{digest}"
