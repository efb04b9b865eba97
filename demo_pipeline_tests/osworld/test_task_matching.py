"""Tests of finding the task of a demonstration, by id or by instruction."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_pipeline.osworld.task_files import instruction_key
from demo_pipeline.osworld.task_matching import (
    NO_CATALOG,
    NO_MATCH,
    TaskIndex,
    TaskMatch,
    require_catalog,
)
from demo_pipeline.recording.meta import Meta

UID = "2f47cce1-8480-561c-95f4-f934cd708e24"
SORT = "Sort the list by date."


def row(name: str, instruction: str, kind: str = "ordinary", file: str = "") -> dict[str, Any]:
    return {
        "file": file or f"examples/os/{name}.json",
        "kind": kind,
        "task_id": name,
        "instruction_key": instruction_key(instruction),
    }


INDEX = TaskIndex(
    [
        row("risky", SORT, "risk", "a.json"),
        row("b-sort", SORT, file="c.json"),
        row("a-sort", SORT, file="b.json"),
        row(UID, "Open the mail."),
        row("silent", " ... "),
    ]
)


def meta(quest: dict[str, Any] | None = None, **values: Any) -> Meta:
    given = {"timestamp": "2026-01-05T09:00:00Z", "title": "Something", **values}
    return Meta.model_validate(given | ({"quest": quest} if quest is not None else {}))


@pytest.mark.parametrize(
    ("demonstration", "field"),
    [
        (meta({"content": SORT, "osworld_task_id": UID}), "quest.osworld_task_id"),
        (meta({"content": SORT, "pool_id": UID}), "quest.pool_id"),
        (meta({"content": SORT, "taskId": UID}), "quest.taskId"),
        (meta({"content": SORT}, task_id=UID), "task_id"),
        (meta(id=UID), "id"),
    ],
)
def test_an_id_in_the_quest_or_in_meta_json_matches(demonstration, field):
    assert INDEX.match(demonstration) == TaskMatch(UID, "id", field, "ordinary", 1)


@pytest.mark.parametrize(
    "quest",
    [
        {"content": "Open it.", "task_id": UID.upper()},
        {"content": "Open it.", "task_id": f"{UID} "},
        {"content": "Open it.", "icon": UID},
        {"content": "Open it.", "task_id": 5, "other_id": None, "list_id": [UID]},
        {"content": f"Open {UID}"},
    ],
)
def test_texts_that_are_not_exactly_an_id_do_not_match(quest):
    assert INDEX.match(meta(quest)) == NO_MATCH


def test_the_same_instruction_matches_whatever_its_typography():
    expected = TaskMatch(UID, "instruction", "quest.content", "ordinary", 1)
    assert INDEX.match(meta({"content": "open the  <app>Mail</app>"})) == expected
    assert INDEX.match(meta(title="OPEN THE MAIL!")).field == "title"


def test_of_several_tasks_the_first_ordinary_one_is_taken_and_all_are_counted():
    expected = TaskMatch("a-sort", "instruction", "quest.content", "ordinary", 3)
    assert INDEX.match(meta({"content": SORT})) == expected


@pytest.mark.parametrize(
    "demonstration", [meta({"content": "..."}), meta({"content": "!"}), meta(title="")]
)
def test_blank_instructions_never_match(demonstration):
    assert INDEX.match(demonstration) == NO_MATCH


def test_a_missing_catalog_is_a_problem():
    assert [p.code for p in require_catalog(NO_CATALOG)] == ["no_catalog"]
    assert require_catalog(NO_MATCH) == []


def test_the_fingerprint_depends_only_on_the_own_match():
    demonstration = meta({"content": "Open the mail."})
    here = INDEX.match(demonstration)
    fewer = TaskIndex([row(UID, "Open the mail.")]).match(demonstration)
    assert here.fingerprint == fewer.fingerprint
    others = [
        NO_CATALOG,
        NO_MATCH,
        INDEX.match(meta({"content": SORT})),
        TaskIndex([row(UID, "Open the mail.", "risk")]).match(demonstration),
        TaskIndex([row(UID, "Open the mail."), row("x", "Open the mail.", "risk")]).match(
            demonstration
        ),
    ]
    assert len({match.fingerprint for match in [here, *others]}) == 6


@given(st.permutations(range(5)), st.sampled_from([SORT, "Open the mail.", "Nothing."]))
def test_the_order_of_the_rows_makes_no_difference(order, instruction):
    rows = [
        row("risky", SORT, "risk", "a.json"),
        row("b-sort", SORT, file="c.json"),
        row("a-sort", SORT, file="b.json"),
        row(UID, "Open the mail."),
        row("silent", "."),
    ]
    demonstration = meta({"content": instruction})
    assert TaskIndex([rows[n] for n in order]).match(demonstration) == TaskIndex(rows).match(
        demonstration
    )
