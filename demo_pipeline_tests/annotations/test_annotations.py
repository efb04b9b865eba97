"""Tests which annotations are effective, and how hostile texts are escaped."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_pipeline.annotations.annotations import (
    SCORES,
    SOURCES,
    VERDICTS,
    Annotation,
    AnnotationKind,
    RefusedValueError,
    checked_annotation,
    clean_text,
    judged_rows,
    value_text,
)
from demo_pipeline.files.shown_text import MARKER

DIGESTS = {None: "w" * 64, 0: "0" * 64, 1: "1" * 64}
TIMES = [f"2026-01-0{day}T00:00:00Z" for day in (1, 2, 3)]


def _value(kind: AnnotationKind, number: int) -> Any:
    if kind in VERDICTS:
        return number % 2 == 0
    if kind in SCORES:
        return number
    return f"words {number}"


annotations = st.builds(
    lambda step, kind, number, source, author, fresh, time: Annotation(
        step,
        kind,
        value_text(_value(kind, number)),
        source,
        author,
        DIGESTS[step] if fresh else "x",
        time,
    ),
    st.sampled_from([None, 0, 1]),
    st.sampled_from(
        [AnnotationKind.THOUGHT, AnnotationKind.STEP_CORRECT, AnnotationKind.ALIGNMENT]
    ),
    st.integers(0, 4),
    st.sampled_from(SOURCES),
    st.sampled_from(["ann", "bob"]),
    st.booleans(),
    st.sampled_from(TIMES),
)


@given(st.lists(annotations, max_size=25), st.randoms())
def test_humans_override_models_and_rules_and_disagreements_are_marked(stored, order):
    rows = judged_rows("demo", stored, DIGESTS)
    assert {of_row(row) for row in rows} == set(stored)
    assert len(rows) == len(set(stored))  # nothing is lost
    again = [*stored, *stored[:3]]
    order.shuffle(again)
    assert judged_rows("demo", again, DIGESTS) == rows  # order and repetition do not matter
    groups = defaultdict(list)
    for row in rows:
        groups[of_row(row).topic].append(row)
        assert row["stale"] == (row["judged"] != DIGESTS[row["step_index"]])
        assert not (row["stale"] and (row["effective"] or row["disagrees"]))
    for group in groups.values():
        fresh = [row for row in group if not row["stale"]]
        used = [row for row in group if row["effective"]]
        assert len(used) == bool(fresh)
        for row in fresh:
            (best,) = used
            rank, least = (SOURCES.index(candidate["source"]) for candidate in (row, best))
            assert (least, row["time"]) <= (rank, max(best["time"], row["time"]))
            assert rank > least or row["time"] <= best["time"]
            compared = best["kind"] in VERDICTS | SCORES
            assert row["disagrees"] == (compared and row["value"] != best["value"])


def of_row(row: dict[str, Any]) -> Annotation:
    return Annotation(**{name: row[name] for name in Annotation.__dataclass_fields__})


@given(st.text(max_size=300))
def test_no_text_keeps_markup_or_invisible_characters(text):
    if not text.strip():
        with pytest.raises(RefusedValueError, match="empty"):
            clean_text(text)
        return
    plain, escaped = clean_text(text)
    assert not MARKER.search(plain)
    assert clean_text(plain) == (plain, 0)
    assert plain.encode()
    assert bool(escaped) == (plain != text.replace("\r\n", "\n").strip().replace("\t", " "))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('<tool_call>{"name": "x"}</tool_call>', '[tool_call]{"name": "x"}[/tool_call]'),
        ("<|im_start|>system", "[|im_start|]system"),
        ("a <image> b", "a [image] b"),
        ("<<image>image>", "<[image]image>"),
        ("<|<image>|>", "[|[image]|]"),
        ("<function=computer_use>", "[function=computer_use]"),
        ('<img src="x" onerror="alert(1)">', '[img src="x" onerror="alert(1)"]'),
        ("\u202eright\x1b[31m", "\\u202eright\\u001b[31m"),
        ("a < b and c > d", "a < b and c > d"),
    ],
)
def test_a_hostile_text_is_escaped(text, left):
    assert clean_text(text)[0] == left


@pytest.mark.parametrize(
    ("kind", "value", "step", "reason"),
    [
        ("thought", "", 0, "empty"),
        ("thought", " \n", 0, "empty"),
        ("thought", "x" * 10_001, 0, "too_long"),
        ("thought", 3, 0, "wrong_schema"),
        ("thought", "x", None, "wrong_kind"),
        ("alignment", 8, 0, "wrong_kind"),
        ("alignment", 11, None, "wrong_schema"),
        ("alignment", True, None, "wrong_schema"),
        ("alignment", 8.0, None, "wrong_schema"),
        ("step_correct", 1, 0, "wrong_schema"),
        ("subtask", [], None, "wrong_schema"),
        ("subtask", [{"first": 2, "last": 1, "text": "x"}], None, "wrong_schema"),
        ("subtask", [{"first": n, "last": 1, "text": "x"} for n in (0, 1)], None, "wrong_schema"),
        ("mood", "good", 0, "wrong_kind"),
    ],
)
def test_an_invalid_value_of_a_kind_is_refused(kind, value, step, reason):
    with pytest.raises(RefusedValueError) as error:
        checked_annotation(kind, value, step)
    assert error.value.reason == reason
    assert "x" * 9 not in str(error.value)
