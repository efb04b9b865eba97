"""Tests of deriving the instruction, the task id and the application from meta.json."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.osworld.task_text import Assignment, assignment_of, one_line, slug, visible_text
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.recording.meta import Meta

QUEST = {"title": "Order a notebook", "app": "Google Chrome", "content": "Please order one."}


def assigned(quest: Any = None, **meta: Any) -> Assignment:
    base = {"timestamp": "2026-01-05T09:00:00+00:00", "platform": "linux"}
    return assignment_of(Meta.model_validate({**base, "quest": quest, **meta}))


@pytest.mark.parametrize(
    ("blank", "source", "instruction"),
    [
        ([], "quest.content", "Please order one."),
        (["content"], "quest.title", "Order a notebook"),
        (["content", "title"], "title", "My recording"),
    ],
)
def test_the_first_field_that_is_not_blank_is_the_instruction(blank, source, instruction):
    quest = {**QUEST, **dict.fromkeys(blank, " \n\t ")}
    assignment = assigned(quest, title="My recording", description="About it")
    assert (assignment.source, assignment.instruction) == (source, instruction)


def test_the_description_is_the_last_resort():
    assignment = assigned(None, title="", description="Just\n  trying")
    assert (assignment.source, assignment.instruction) == ("description", "Just\n  trying")
    assert assignment.application == "unknown"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Open <app>Chrome</app>, then <APP name='x'> Mail </APP> too. Keep <b>this</b>.",
            "Open Chrome, then Mail too. Keep <b>this</b>.",
        ),
        (
            " exactly:\r\n\r\ndef f(x):\r    return  x \n\t\n",
            " exactly:\n\ndef f(x):\n    return  x",
        ),
        (" \n\t- one\n\t- two", "\t- one\n\t- two"),
        (" \n one line ", "one line"),
        ("<app></app>", ""),
    ],
)
def test_tags_are_removed_and_indentation_stays(text, expected):
    assert visible_text(text) == expected
    assert one_line(text) == " ".join(expected.split())
    assert slug(text) == slug(one_line(text)) or "app" in text


def test_a_tag_alone_is_blank():
    assignment = assigned({**QUEST, "content": "<app></app>"})
    assert assignment.source == "quest.title"


def test_without_an_instruction_the_demonstration_is_refused():
    with pytest.raises(DemonstrationError) as caught:
        assigned({"title": " ", "content": ""}, title="", description=" ")
    (problem,) = caught.value.problems
    assert (problem.code, problem.file) == ("no_instruction", "meta.json")
    assert problem.remedy


def test_the_task_is_the_application_and_the_quests_title():
    assignment = assigned(QUEST)
    assert assignment.application == "chrome"
    assert assignment.task_id == assignment.split_group == "chrome_order_a_notebook"
    again = assigned({**QUEST, "content": "Could you order it?"}, platform="windows")
    assert again.split_group == assignment.split_group


def test_without_a_quest_it_is_the_platform_and_the_instruction():
    assert assigned(None, title="Rename a file").task_id == "linux_rename_a_file"


def test_slugs_of_texts_in_other_scripts_stay_distinct():
    assert slug("Chrome  Order: a Notebook!") == "chrome_order_a_notebook"
    assert slug("Заметки") != slug("Почта")
    assert slug("Café") != slug("Cafe")
    long = "word " * 60
    assert slug(long + "one") != slug(long + "two")


@settings(deadline=None)
@given(st.text(max_size=300))
def test_a_slug_is_a_short_ascii_name(text):
    shortened = slug(text)
    assert 0 < len(shortened) <= 90
    assert set(shortened) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")
    assert slug(text) == shortened
