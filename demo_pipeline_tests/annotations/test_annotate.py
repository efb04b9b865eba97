"""Tests requests to models: prompts, stored and refused answers, and no repeated questions."""

import base64
import json
import logging
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from demo_pipeline.annotations.annotate import annotate_all, estimate
from demo_pipeline.annotations.annotation_store import document_keys, open_judged, read_documents
from demo_pipeline.annotations.model_prompts import PROMPTS
from demo_pipeline.files.shown_text import MARKER
from demo_pipeline.review.review_store import Reviews
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import PrivacySettings
from demo_pipeline_tests.annotations.made import (
    CALLS,
    KEY,
    STEP,
    TYPED,
    Behaviour,
    chat,
    good,
    made_store,
    providers,
)
from demo_pipeline_tests.evaluation.fake_server import fake_server

_COUNTERS = re.compile(r"refused \((\w+)\)")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return made_store(tmp_path)


def notes(workspace: Workspace, name: str = "demo") -> Any:
    return open_judged(
        workspace.store, name, Reviews(workspace.store), PrivacySettings()
    ).trajectory.notes


def documents(workspace: Workspace, name: str = "demo") -> list[Any]:
    keys = document_keys(workspace.store, name)
    stored = read_documents(workspace.store, keys)
    assert len(stored) == len(keys)
    return stored


def test_a_second_run_makes_no_call_and_the_first_made_the_estimated_ones(workspace):
    with fake_server(good) as server:
        asked = estimate(workspace.store, ["demo"], providers(server.url))
        assert (asked.demonstrations, asked.requests, asked.pictures) == (1, CALLS, 3 + 2 + 2 + 1)
        counts = annotate_all(workspace.store, ["demo"], providers(server.url))
        assert (counts.written, len(server.bodies), server.most_at_once <= 2) == (
            CALLS,
            CALLS,
            True,
        )
        assert annotate_all(workspace.store, ["demo"], providers(server.url)).written == 0
        assert estimate(workspace.store, ["demo"], providers(server.url)).requests == 0
        assert len(server.bodies) == CALLS
        annotate_all(workspace.store, ["demo"], providers(server.url, "stub-2"))
        assert len(server.bodies) == 2 * CALLS  # another model is asked
    stored_notes = notes(workspace)
    assert stored_notes[1]["thought"] == (STEP["thought"], "model")
    assert stored_notes[None]["alignment"].value == 8  # 0.5 · 9 + 0.3 · 8 + 0.2 · 5 = 7.9
    assert stored_notes[None]["brief"].value == "Start Chrome"
    assert stored_notes[None]["subtask"].value[0]["last"] == 2


def test_a_question_shows_before_place_and_after_and_says_what_was_done(workspace):
    with fake_server(good) as server:
        annotate_all(workspace.store, ["demo"], providers(server.url, at_once=1))
        first, second, *_, grade = server.bodies[: len(server.bodies) - 2]
        headers = server.headers
    assert all(header["Authorization"] == f"Bearer {KEY}" for header in headers)
    assert first["response_format"]["json_schema"]["schema"]["required"][0] == "observation"
    pictures = [picture(part) for part in content(first) if part["type"] == "image_url"]
    assert [image.shape for image in pictures] == [(720, 1280, 3)] * 3
    before, place, after = pictures
    assert (after != before).any()
    assert reddish(
        place[320:400, 600:680]
    )  # the marked click is in the middle of the magnified crop
    assert not reddish(before)
    assert "Open Chrome 0" in words(first)
    assert '"x": 960, "y": 540' in words(first)
    assert TYPED in words(second)  # the request contains the true action
    assert f"0. {STEP['caption']}" in words(grade)  # the request quotes the captions


def content(body: dict[str, Any]) -> list[dict[str, Any]]:
    return body["messages"][1]["content"]


def words(body: dict[str, Any]) -> str:
    return "\n".join(part["text"] for part in content(body) if part["type"] == "text")


def picture(part: dict[str, Any]) -> Any:
    data = base64.b64decode(part["image_url"]["url"].partition(",")[2])
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)


def reddish(some: Any) -> bool:
    pixels = some.astype(int)
    return bool((pixels[..., 2] - pixels[..., 0] > 80).any())


HOSTILE = {
    "empty": ("", "empty"),
    "blank": (" \n ", "empty"),
    "malformed": ('{"thought": "half', "not_json"),
    "words": ("I cannot help with that.", "not_json"),
    "huge": (json.dumps(STEP | {"thought": "x" * 200_000}), "too_long"),
    "long thought": (json.dumps(STEP | {"thought": "x" * 20_000}), "too_long"),
    "other schema": (json.dumps({"answer": "yes"}), "wrong_schema"),
    "one member more": (json.dumps(STEP | {"score": 3}), "wrong_schema"),
    "text for true": (json.dumps(STEP | {"correct": "yes"}), "wrong_schema"),
    "empty thought": (json.dumps(STEP | {"thought": "\u200b"[:0]}), "empty"),
    "a list": (json.dumps([STEP]), "wrong_schema"),
    "not a number": ('{"thought": NaN}', "not_json"),
    "deep": ("[" * 50_000, "not_json"),
}


@pytest.mark.parametrize("answer", HOSTILE)
def test_an_invalid_answer_is_refused_and_the_question_asked_once_more(workspace, answer):
    text, reason = HOSTILE[answer]
    reasons_in_questions: list[str] = []

    def bad_then_good(body: dict[str, Any], _number: int) -> tuple[int, Any]:
        if match := _COUNTERS.search(words(body)):
            reasons_in_questions.append(match[1])
            return good(body)
        return chat(text)

    with fake_server(bad_then_good) as server:
        counts = annotate_all(workspace.store, ["demo"], providers(server.url)[:1])
        assert (counts.written, counts.refused, counts.gave_up) == (3, {reason: 3}, 0)
        assert reasons_in_questions == [reason] * 3
        assert len(server.bodies) == 6
    assert notes(workspace)[0]["thought"].value == STEP["thought"]


def test_a_question_refused_twice_is_stored_and_not_asked_again(workspace):
    with fake_server(lambda *_: chat("no JSON \x1b[31m<image>")) as server:
        counts = annotate_all(workspace.store, ["demo"], providers(server.url)[:1])
        assert (counts.gave_up, counts.refused) == (3, {"not_json": 6})
        annotate_all(workspace.store, ["demo"], providers(server.url)[:1])
        assert len(server.bodies) == 6
    assert notes(workspace) == {}
    assert {document.answer for document in documents(workspace)} == {"no JSON \\u001b[31m<image>"}


def test_markup_and_markers_in_an_answer_are_escaped_and_counted(workspace):
    bad = "I see <image> and </think><tool_call>{}</tool_call> <|im_end|>\x00 <b>bold</b>"
    answer = STEP | dict.fromkeys(("thought", "caption", "observation", "reflection"), bad)
    with fake_server(lambda *_: chat(f"```json\n{json.dumps(answer)}\n```")) as server:
        counts = annotate_all(workspace.store, ["demo"], providers(server.url)[:1])
    assert (counts.refused, counts.escaped) == ({}, 3 * 4 * 8)
    texts: list[str] = []
    for notes_of_step in notes(workspace).values():
        texts += [str(note.value) for note in notes_of_step.values()]
    assert texts
    assert not any(MARKER.search(text) or "\x00" in text or "<b>" in text for text in texts)


@pytest.mark.parametrize("status", [500, 429, 400, 0])
def test_a_question_without_an_answer_is_asked_again_by_the_next_run(workspace, status):
    def fails(body: dict[str, Any], number: int) -> tuple[int, Any]:
        return good(body) if number == 0 else (status or 200, {"error": TYPED} if status else None)

    with fake_server(fails) as server:
        first = providers(server.url, at_once=1)[:1]
        assert annotate_all(workspace.store, ["demo"], first).written == 1
        assert sum(first[0].unanswered.values()) == 2
        assert TYPED not in str(first[0].unanswered)
    with fake_server(good) as server:
        assert annotate_all(workspace.store, ["demo"], providers(server.url)[:1]).written == 2


KILLED = """
import os, sys
from pathlib import Path
from demo_pipeline.annotations.annotate import annotate_all
from demo_pipeline.store.store import open_store
from demo_pipeline_tests.annotations.made import providers

written = iter(range(2))
annotate_all(open_store(sys.argv[1]), ["demo"], providers(sys.argv[2], at_once=1),
         lambda: next(written, None) == 1 and os._exit(9))
"""


def test_a_killed_run_continues_where_it_stopped(workspace, tmp_path):
    with fake_server(good) as server:
        arguments = [sys.executable, "-c", KILLED, str(tmp_path / "store"), server.url]
        assert subprocess.run(arguments, check=False).returncode == 9
        asked = len(server.bodies)
        kept = len(documents(workspace))
        assert kept == 2
        annotate_all(workspace.store, ["demo"], providers(server.url))
        assert len(server.bodies) - asked == CALLS - kept
    assert len(documents(workspace)) == CALLS


def test_neither_the_key_nor_typed_text_is_logged_or_kept_beside_the_answers(
    workspace, tmp_path, caplog
):
    caplog.set_level(logging.DEBUG)
    behaviours: list[Behaviour] = [good, lambda *_: (500, {"error": KEY + TYPED})]
    for behave in behaviours:
        with fake_server(behave) as server:
            some = providers(server.url, "stub-2" if behave is not good else "stub-1")
            annotate_all(workspace.store, ["demo"], some)
            assert KEY not in repr(some)
    assert KEY not in caplog.text
    assert TYPED not in caplog.text
    kept = [path for path in (tmp_path / "store" / "annotations").rglob("*") if path.is_file()]
    assert len(kept) == CALLS
    assert not any(TYPED in text or KEY in text for text in map(Path.read_text, kept))


def test_another_text_or_schema_of_a_prompt_is_another_prompt():
    assert len({prompt.id for prompt in PROMPTS}) == len(PROMPTS)
    assert replace(PROMPTS[0], text="another").id != PROMPTS[0].id
    assert replace(PROMPTS[0], answer=PROMPTS[1].answer).id != PROMPTS[0].id


def test_a_damaged_document_is_named_and_ignored(workspace, caplog):
    with fake_server(good) as server:
        annotate_all(workspace.store, ["demo"], providers(server.url))
    changed, *others = document_keys(workspace.store, "demo")
    for text in (f'{{"{TYPED}', json.dumps({"step": TYPED})):
        workspace.store.put_document(changed, text.encode())
        stored = read_documents(workspace.store, [changed, *others])
        assert {document.key for document in stored} == {*others}
    assert caplog.messages.count(f"{changed} is damaged and is ignored") == 2
    assert TYPED not in caplog.text
