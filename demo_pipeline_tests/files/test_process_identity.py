"""Whether a process is gone: a process id alone does not tell."""

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from demo_pipeline.files.processes import (
    ProcessIdentity,
    has_ended,
    is_running,
    process_start,
    this_process,
)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits to be killed."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def identity_of(process: subprocess.Popen[bytes]) -> ProcessIdentity:
    start = process_start(process.pid)
    assert start is not None
    return replace(this_process(), pid=process.pid, start=start)


def test_a_living_process_has_not_ended(child: subprocess.Popen[bytes]) -> None:
    for one in (this_process(), identity_of(child)):
        assert is_running(one.mark)
        assert not has_ended(one.mark)


def test_a_killed_process_has_ended_before_and_after_its_parent_noticed(
    child: subprocess.Popen[bytes],
) -> None:
    one = identity_of(child)
    child.kill()
    while process_start(child.pid) is not None:  # until it is a zombie
        time.sleep(0.01)
    assert has_ended(one.mark)
    child.wait()
    assert has_ended(one.mark)
    assert not is_running(one.mark)


@pytest.mark.parametrize("other", [{"start": "1"}, {"boot": "another"}], ids=["same pid", "boot"])
def test_another_process_with_the_same_id_is_no_life_sign(other: dict[str, Any]) -> None:
    assert has_ended(replace(this_process(), **other).mark)


@pytest.mark.parametrize(
    "unknown", [{"host": "other/123", "pid": 2**22 + 1}, {"start": "-"}, {"boot": "-"}]
)
def test_what_is_not_known_is_no_proof(unknown: dict[str, Any]) -> None:
    assert not has_ended(replace(this_process(), **unknown).mark)


def test_its_text_can_be_read_back() -> None:
    assert ProcessIdentity.parse(str(this_process())) == this_process()
    assert len(str(this_process()).split()) == 4


@pytest.mark.parametrize("text", ["", "a b c d", "a 1 b", "a 1 b c d", "a \u0661 b c"])
def test_any_other_text_is_no_identity(text: str) -> None:
    assert ProcessIdentity.parse(text) is None


@pytest.mark.parametrize("mark", ["", "0123456789abcdef", "a-b-c", "x-1-y", "-", "--"])
def test_the_name_of_another_file_is_no_mark(mark: str) -> None:
    assert not has_ended(mark)
