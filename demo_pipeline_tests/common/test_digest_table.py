"""Digests and line numbers in little memory."""

import hashlib

from demo_pipeline.common.digest_table import DigestTable, LineNumbers
from demo_pipeline.common.known_lines import KnownLines, line_digest


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
    assert [number for number in range(20) if number in numbers] == [2, 7]


def test_what_this_check_found_is_not_what_was_known_before() -> None:
    known = KnownLines()
    known.add(line_digest(b"before"), digest(1))
    known.add_found(line_digest(b"now"))
    assert known.fact(line_digest(b"before\n")) == digest(1)
    assert known.fact(line_digest(b"now")) is None
    assert known.any_fact(line_digest(b"now")) == b""
    assert known.any_fact(line_digest(b"before")) == digest(1)
    assert known.any_fact(line_digest(b"never")) is None
