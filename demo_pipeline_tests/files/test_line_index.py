"""Lines of a file by their places and numbers."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from demo_pipeline.files.line_digests import index_lines, line_digest

LINES = st.lists(st.sampled_from([b"", b" ", b"{}", b"long" * 5000, b"last line"]), max_size=12)


@given(LINES, st.booleans(), st.sets(st.integers(0, 11)))
def test_lines_are_those_of_the_file(tmp_path_factory, lines, ends, chosen) -> None:
    path: Path = tmp_path_factory.getbasetemp() / "lines.jsonl"
    path.write_bytes(b"\n".join(lines) + (b"\n" if ends else b""))
    with path.open("rb") as file:
        expected = list(file)
    index, digests = index_lines(path)
    assert list(digests) == [line_digest(line) for line in expected]
    places = sorted(place for place in chosen if place < len(expected))
    assert list(index.lines_at(places)) == [(place, expected[place]) for place in places]
    rows = [line for line in expected if line.strip()]
    assert index.rows == len(rows)
    numbers = sorted(number + 1 for number in chosen)
    wanted = [rows[number - 1] if number <= len(rows) else None for number in numbers]
    assert list(index.rows_at(iter(numbers))) == wanted
