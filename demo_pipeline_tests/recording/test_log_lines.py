"""Tests that splitting lines and validating UTF-8 agree with simple code for arbitrary bytes."""

import io
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.recording import input_log as parser
from demo_pipeline.recording.input_log import parse_log, split_lines
from demo_pipeline_tests.simulator.mutations import mutated_line


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"xyz", b"\xef\xbb\xbf"])).map(b"".join))
def test_lines_have_the_positions_of_a_plain_split(log):
    bare = log.removeprefix(b"\xef\xbb\xbf")
    plain = [line.rstrip(b"\r\n") for line in bare.split(b"\n")]
    if bare.endswith(b"\n") or not bare:
        plain.pop()
    if log and not bare:
        plain = [b""]
    pieces = list(split_lines(io.BytesIO(log), 1_000))
    assert [log[start : start + length] for _, start, length, _ in pieces] == plain
    assert [line.rstrip(b"\r\n") for *_, line in pieces if line is not None] == plain


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r\r\n"])
def test_the_fast_path_decides_like_the_full_parser(monkeypatch, end):
    random = Random(f"both ways {end!r}")
    log = end.join(mutated_line(random) for _ in range(3_000))
    quick = list(parse_log(io.BytesIO(log)))
    monkeypatch.setattr(parser, "_decode_documented", lambda _line: None)
    assert list(parse_log(io.BytesIO(log))) == quick
    assert {type(row).__name__ for row in quick} == {"Event", "Rejected"}
