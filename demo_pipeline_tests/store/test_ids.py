import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from demo_pipeline.store.names import is_safe_id


@settings(deadline=None)
@given(st.one_of(st.text(max_size=140), st.text(alphabet="aB0._- /", max_size=140)))
@example("two..dots")
@example("upload.JSON")
def test_an_id_can_be_a_file_and_a_partition(name):
    plain = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", name) and ".." not in name
    reserved = name.lower().endswith((".", ".json", ".lock"))
    assert is_safe_id(name) == (bool(plain) and not reserved)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a..b",
        "-a",
        "_a",
        "a/b",
        "a\n",
        "a" * 129,
        "é",
        "a b",
        "\udce9",
        "a.",
        "a.lock",
    ],
)
def test_names_that_are_no_ids(name):
    assert not is_safe_id(name)


@pytest.mark.parametrize("name", ["a", "0", "A.b_c-d", "a" * 128, "a.json.b"])
def test_names_that_are_ids(name):
    assert is_safe_id(name)
