import os
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from demo_pipeline.store.names import is_safe_id, printable_name, safe_id

NAMES = st.one_of(
    st.text(max_size=300),
    st.text(alphabet="aB0._- /", max_size=200),
    st.binary(max_size=60).map(os.fsdecode),
)


@settings(deadline=None)
@given(NAMES)
@example("two..dots")
def test_every_name_has_an_id_that_can_be_a_file_and_a_partition(name):
    key = safe_id(name)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", key)
    assert ".." not in key
    assert "\n" not in key


@settings(deadline=None)
@given(NAMES)
def test_an_id_is_its_own_id_and_a_safe_name_stays(name):
    assert safe_id(safe_id(name)) == safe_id(name)
    reserved = name.lower().endswith((".", ".json", ".lock"))
    assert (safe_id(name) == name) == (is_safe_id(name) and not reserved)
    assert is_safe_id(safe_id(name))


@settings(deadline=None)
@given(st.lists(NAMES, unique=True, min_size=2, max_size=10))
def test_different_names_have_different_ids_unless_a_name_imitates_an_id(names):
    keys = {safe_id(name) for name in names}
    assert len(keys) == len(names)


def test_names_that_differ_only_in_what_is_replaced_stay_apart():
    names = ["a b", "a/b", "a_b", "a\nb", "a b ", "a\u0301", "\u00e1", "A b", "", ".", "..", "a..b"]
    assert len({safe_id(name) for name in names}) == len(names)


@pytest.mark.parametrize("name", ["upload.", "a.json", "A.JSON", "b.lock", "a..", "c.d."])
def test_a_name_that_the_store_or_a_file_system_would_change_is_derived(name):
    assert safe_id(name) != name
    assert not safe_id(name).lower().endswith((".", ".json", ".lock"))


def test_the_id_is_the_same_on_every_machine():
    assert safe_id("demo 1: login") == "demo_1_login-3c66c2aa7243d1c231babae2"


def test_unsafe_ids():
    for text in ("", ".", "..", "a..b", "-a", "_a", "a/b", "a\n", "a" * 129, "é", "../etc", "a b"):
        assert not is_safe_id(text), text
    for text in ("a", "0", "A.b_c-d", "a" * 128, "a."):
        assert is_safe_id(text), text


def test_a_printable_name_is_valid_unicode_and_shows_bytes_that_are_not_utf_8():
    assert printable_name("demo 1 ü") == "demo 1 ü"
    assert printable_name("caf\udce9") == r"caf\xe9"
    assert printable_name("\ud800").isascii()
