"""Whether a process is gone: a process id alone does not tell."""

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from demo_pipeline.files.processes import ProcessIdentity, has_ended, process_start, this_process


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


def test_a_living_process_is_not_gone(child: subprocess.Popen[bytes]) -> None:
    for one in (this_process(), identity_of(child)):
        assert not one.is_gone(this_process(), process_start)
        assert not has_ended(one.mark)


def test_a_killed_process_is_gone_before_and_after_its_parent_noticed(
    child: subprocess.Popen[bytes],
) -> None:
    one = identity_of(child)
    child.kill()
    while process_start(child.pid) is not None:  # until it is a zombie
        time.sleep(0.01)
    assert one.is_gone(this_process(), process_start)
    child.wait()
    assert one.is_gone(this_process(), process_start)
    assert has_ended(one.mark)


def test_another_process_with_the_same_id_is_no_life_sign() -> None:
    earlier = replace(this_process(), start="1")
    assert earlier.is_gone(this_process(), process_start)
    assert has_ended(earlier.mark)


def test_a_process_from_before_the_machine_was_restarted_is_gone() -> None:
    earlier = replace(this_process(), boot="another")
    assert earlier.is_gone(this_process(), process_start)
    assert has_ended(earlier.mark)


def test_of_a_process_on_another_host_nothing_is_known() -> None:
    elsewhere = replace(this_process(), host="other/123", pid=2**22 + 1)
    assert not elsewhere.is_gone(this_process(), process_start)
    assert not has_ended(elsewhere.mark)


def test_an_unknown_start_or_boot_is_no_proof() -> None:
    for unknown in (replace(this_process(), start="-"), replace(this_process(), boot="-")):
        assert not unknown.is_gone(this_process(), process_start)


def test_its_text_can_be_read_back() -> None:
    assert ProcessIdentity.parse(str(this_process())) == this_process()
    assert len(str(this_process()).split()) == 4


@pytest.mark.parametrize("text", ["", "a b c d", "a 1 b", "a 1 b c d", "a \u0661 b c"])
def test_any_other_text_is_no_identity(text: str) -> None:
    assert ProcessIdentity.parse(text) is None


@pytest.mark.parametrize("mark", ["", "0123456789abcdef", "a-b-c", "x-1-y", "-", "--"])
def test_the_name_of_another_file_is_no_mark(mark: str) -> None:
    assert not has_ended(mark)
