"""Tests that concurrent decisions are stored once each, and are exchanged without loss."""

from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.review.decisions import Decision, DecisionError, Subject
from demo_pipeline.review.review_store import (
    Reviews,
    exchanged,
    import_decisions,
    read_exchange,
    subject_of,
)
from demo_pipeline.store.store import Store
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectory
from demo_pipeline_tests.sample_workspace import open_workspace


@pytest.fixture
def judged(tmp_path: Path) -> tuple[Store, Path, Subject]:
    """Returns a store with the demonstration `demo` of four steps, its folder, and its subject.

    The subject is the version of the trajectory to which decisions refer.
    """
    workspace = open_workspace(tmp_path)
    trajectory = make_trajectory(tmp_path, actions=(CLICK,) * 4)
    version = commit_trajectory(workspace, trajectory)
    return workspace.store, trajectory.path, subject_of(version, "demo")


def make(store: Store, judged: Any, kind: str, value: Any = None, who: str = "ann") -> Decision:
    return Reviews(store).make(judged[2], judged[1], who, kind, value or {})


def test_decisions_of_many_reviewers_at_once_are_stored_once_each(judged):
    store = judged[0]

    def work(who: int) -> list[str]:
        reviews = Reviews(store)
        notes = ({"text": f"{who}-{number}"} for number in range(10))
        return [reviews.make(judged[2], judged[1], f"r{who}", "note", n).id for n in notes]

    with ThreadPoolExecutor(4) as pool:
        written = list(chain.from_iterable(pool.map(work, range(4))))
    reviews = Reviews(store)
    reviews.refresh("demo")
    assert sorted(decision.id for decision in reviews.all()) == sorted(written)
    assert len({decision.value.text for decision in reviews.all()}) == 40  # type: ignore[attr-defined]


def test_the_same_id_twice_is_one_decision(judged):
    store, folder, subject = judged
    send = (subject, folder, "ann", "bad_step", {"step": 1}, "a" * 32)
    first = Reviews(store).make(*send)
    assert Reviews(store).make(*send) == first
    assert len(store.list_documents("reviews")) == 1


def test_a_document_is_never_replaced(either):
    assert either.add_document("reviews/demo/a.json", b"1")
    assert not either.add_document("reviews/demo/a.json", b"2")
    assert either.get_document("reviews/demo/a.json") == b"1"


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("bad_step", {"step": 4}, "no such step"),
        ("bad_step", {"step": True}, "step"),
        ("trim", {"first": 0, "last": 9}, "no such step"),
        ("trim", {"first": None, "last": 1}, "first"),
        ("undo", {"decision": "b" * 32}, "no decision has this id"),
        ("action", {"action": {"step_index": 9}}, "no such step"),
        ("action", {"action": {"step_index": 0, "target_element": {"id": "node_7"}}}, "role"),
    ],
)
def test_a_decision_about_something_the_trajectory_lacks_is_refused(judged, kind, value, message):
    with pytest.raises(DecisionError, match=message):
        make(judged[0], judged, kind, value)
    assert judged[0].list_documents("reviews") == []


def test_a_damaged_decision_is_ignored_and_named(judged):
    store = judged[0]
    decision = make(store, judged, "approve")
    store.put_document("reviews/demo/torn.json", b'{"id": ')
    store.put_document(f"reviews/other/{decision.id}.json", b"{}")
    reviews = Reviews(store)
    reviews.refresh()
    assert reviews.all() == [decision]
    assert len(reviews.damaged()) == 2


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_an_export_is_imported_without_loss_and_twice_changes_nothing(judged, tmp_path, suffix):
    store = judged[0]
    decisions = [
        make(store, judged, "instruction", {"text": 'Say "hi", twice;\nthen = stop'}),
        make(store, judged, "reject", {"reason": "other", "text": "ü,\u2028 x"}, "bob"),
    ]
    decisions.append(make(store, judged, "undo", {"decision": decisions[1].id}))
    file = tmp_path / f"decisions{suffix}"
    file.write_bytes(exchanged(decisions, suffix).encode())
    other = Store(tmp_path / "other")
    read, problems = read_exchange(file)
    assert (read, problems) == (decisions, [])
    assert import_decisions(other, read) == (3, [])
    assert import_decisions(other, read) == (0, [])
    reviews = Reviews(other)
    reviews.refresh()
    assert reviews.all() == decisions


def test_invalid_lines_are_named_and_the_others_are_imported(judged, tmp_path):
    store = judged[0]
    good = make(store, judged, "approve")
    wrong = good.model_copy(update={"id": "c" * 32, "demonstration": "../x"})
    invalid = make(store, judged, "bad_step", {"step": 3}).model_dump(mode="json")
    invalid |= {"id": "d" * 32, "value": {"step": 77}}
    lines = [exchanged([good, wrong], ".jsonl"), '{"secret": "typed"}\n', "nonsense\n"]
    file = tmp_path / "x.jsonl"
    file.write_text("".join((*lines, exchanged([Decision.model_validate(invalid)], ".jsonl"))))
    decisions, problems = read_exchange(file)
    assert [problem.line for problem in problems] == [2, 3, 4]
    assert "typed" not in str(problems)
    added, refused = import_decisions(store, decisions)
    assert added == 0
    [problem] = refused
    assert problem.file == "demo"
    assert problem.message.endswith("the trajectory has no such step")
