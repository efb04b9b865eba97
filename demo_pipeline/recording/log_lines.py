"""Splits a log into lines with their positions, and validates UTF-8.

Belongs here: what has to be fast for the lines of scans, which are half a megabyte long. How a
line is decoded is in input_log.py.
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

BOM = b"\xef\xbb\xbf"
LINE_END = b"\r\n"
BUFFER_BYTES = 2**20  # Python's default of 8 kB is slow for the lines of scans


def split_lines(stream: BinaryIO, limit: int) -> Iterator[tuple[int, int, int, bytes | None]]:
    """Yield (1-based number, offset, length, bytes) of each line; None for bytes above `limit`.

    Lines end with LF; a CR before it and a BOM at the start of the file are not part of a line.
    The length excludes the line end. The bytes include it: removing it would copy the line.
    """
    offset = 0
    number = 0
    while raw := stream.readline(limit + len(BOM) + len(LINE_END)):
        number += 1
        start, size, last = offset, len(raw), raw
        while not last.endswith(b"\n") and (rest := stream.readline(BUFFER_BYTES)):
            size, last = size + len(rest), last[-1:] + rest
        offset += size
        if number == 1 and raw.startswith(BOM):
            start, raw = len(BOM), raw[len(BOM) :]
        length = offset - start - _end_length(last)
        yield number, start, length, raw if length <= limit else None


def _end_length(line: bytes) -> int:
    if line.endswith(b"\n") and not line.endswith(LINE_END):
        return 1
    return len(line) - len(line.rstrip(LINE_END))


def is_utf8(line: bytes) -> bool:
    """Whether `line.decode()` would succeed; several times faster, without creating the text.

    Arrow validates string columns fast, so the line is wrapped as a column of one row.
    """
    if line.isascii():
        return True
    offsets = pa.py_buffer(struct.pack("=qq", 0, len(line)))
    column = pa.Array.from_buffers(pa.large_utf8(), 1, [None, offsets, pa.py_buffer(line)])
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
