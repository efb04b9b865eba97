"""Tests that only readable element names without typed text are used in instructions."""

import pytest

from demo_pipeline.trajectories.step_sentences import (
    TypedTexts,
    element_text,
    is_readable,
    name_key,
)


@pytest.mark.parametrize(
    "name",
    [
        *("Save", "Save as …", "Ink, lined", "900", "5", "Bold (Ctrl+B)", "100 %", "Cut/Copy"),
        *(
            "Zurück",
            "保存",
            "保存して終了するにはここをクリックしてください",
            "welcome.txt",
            "Donaudampf",
        ),
        *("12:30", "3.14", "Show 1 — doors 18:30", "Undo  typing"),
    ],
)
def test_words_of_an_interface_are_readable(name):
    assert is_readable(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", "  ", "…", "\ue5cd", "\x00", "Save\x07", "★"),
        *("btn_save", "Chrome.Widget.Win", "C:\\Users", "https://example.org", "usr/share/doc"),
        *("jane@example.org", "<b>bold</b>", "{{name}}", "a1b2c3d4", "9f86d081884c7d65", "#fff"),
        *("4111 1111 1111 1111", "20261121", "Pneumonoultramicroscopicsilico", "x" * 61),
        *("<|im_start|>", "<image>"),
    ],
)
def test_codes_addresses_secrets_and_glyphs_are_not_readable(name):
    assert not is_readable(name)


@pytest.mark.parametrize(
    "name",
    [
        *("Kendrick Lamar", "kendrick lamar", "KENDRICK  LAMAR", "Results for Kendrick Lamar"),
        *("Kendrick", "Lamar", "x", "a b", "foobar", "hunter2hunter2"),
    ],
)
def test_a_typed_text_is_not_a_name(name):
    typed = TypedTexts(["Kendrick Lamar", "X", "ab", "foo", "bar", "hunter2"])
    assert typed.may_be(name)


@pytest.mark.parametrize("name", ["Save", "Results", "Xylophone", "Table"])
def test_a_single_typed_letter_does_not_exclude_the_names_that_contain_it(name):
    assert not TypedTexts(["Kendrick Lamar", "X", "ab", ""]).may_be(name)
    assert not TypedTexts([]).may_be(name)


def test_names_are_compared_without_case_spaces_and_signs():
    same = {name_key(name) for name in ("Save as…", "save As...", "&Save as", " Save  as: ")}
    assert len(same) == 1
    assert name_key("+") != name_key("-")


def test_an_element_is_named_by_its_name_and_role():
    assert element_text("Save", "button") == "the Save button"
    assert element_text("Save\nas", "menuitem") == "the Save as menu item"
    assert element_text("Search button", "button") == "the Search button"


def test_typed_text_is_not_shown():
    typed = TypedTexts(["hunter2"])
    assert "hunter2" not in repr(typed)
