"""Digests and line numbers in little memory."""

import hashlib

import pytest

from demo_pipeline.files.line_digests import (
    DigestColumn,
    DigestTable,
    KnownLines,
    LineNumbers,
    line_digest,
)


def digest(number: int) -> bytes:
    return hashlib.blake2b(b"%d" % number, digest_size=16).digest()


def test_a_table_gives_what_a_dictionary_gives() -> None:
    table, known = DigestTable(), dict[bytes, int]()
    for number in [*range(5000), *range(100)]:
        key = digest(number)
        assert table.setdefault(key, number * 7) == known.setdefault(key, number * 7)
    assert len(table) == len(known) == 5000
    assert dict(table.items()) == known
    assert all(table.get(key) == number for key, number in known.items())
    assert digest(5000) not in table
    assert table.get(digest(5000)) is None


@pytest.mark.no_cover  # other tests run the same lines
def test_digests_that_begin_alike_are_told_apart() -> None:
    table = DigestTable()
    for number in range(3000):  # one slot wanted by all, and digests of zeros
        assert table.setdefault(bytes(8) + number.to_bytes(8, "little"), number) == number
    assert table.get(bytes(16)) == 0
    assert table.get(bytes(8) + (2999).to_bytes(8, "little")) == 2999
    assert table.get(bytes(8) + (3000).to_bytes(8, "little")) is None


def test_line_numbers_are_a_set() -> None:
    numbers = LineNumbers()
    numbers.add(7)
    numbers.add(2)
    assert numbers.within(range(20)) == [2, 7]
    assert numbers.within(range(3, 7)) == []
    assert numbers.within(range(7, 9)) == [7]
    assert numbers.within(range(30, 40)) == []


def test_what_this_check_found_is_not_what_was_known_before() -> None:
    known = KnownLines()
    known.add(line_digest(b"before"), digest(1))
    known.add_found(line_digest(b"now"))
    lines = DigestColumn(b"".join(map(line_digest, [b"before\n", b"now", b"never"])))
    assert list(known.facts(lines)) == [digest(1), None, None]
    assert known.sort_out(lines) == (bytearray(digest(1) + bytes(32)), [1, 2])
    assert KnownLines().sort_out(lines) == (bytearray(48), [0, 1, 2])
    assert known.sort_out(DigestColumn())[0] == bytearray()
    assert list(known.any_facts(lines)) == [digest(1), b"", None]


def test_a_column_finds_what_a_dictionary_finds() -> None:
    alike = [bytes(8) + number.to_bytes(8, "little") for number in range(300)]
    column = DigestColumn(b"".join(alike))
    assert len(column) == 300
    assert list(column) == alike
    assert not column.has_equals()
    wanted = [*alike[::-3], digest(1), bytes(8) + (300).to_bytes(8, "little")]
    places = {value: place for place, value in enumerate(alike)}
    expected = [places.get(value, -1) for value in wanted]
    assert column.find(DigestColumn(b"".join(wanted))).tolist() == expected
    column.extend(alike[7])
    assert column.has_equals()
    assert column.first_places().tolist() == [*range(300), 7]
    assert DigestColumn().find(column).tolist() == [-1] * 301
    assert column.find(DigestColumn()).tolist() == []
    assert not DigestColumn().has_equals()
