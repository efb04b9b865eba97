"""Bytes into lines: where each begins, how long it is, and whether it is UTF-8.

Belongs here: what has to be fast for lines of half a megabyte, which scans are. Not here: what a
line says (log.py).
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

BOM = b"\xef\xbb\xbf"
LINE_END = b"\r\n"
BUFFER_BYTES = 2**20  # scans come slowly through Python's usual 8 kB


def split_lines(stream: BinaryIO, limit: int) -> Iterator[tuple[int, int, int, bytes | None]]:
    """Yield (1-based number, offset, length, bytes) of each line; no bytes over `limit`.

    Lines end with LF; a CR before it and a BOM at the start of the file belong to no line. The
    length is without the line end. The bytes are with it: cutting it off would copy the line.
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
    """Whether `line.decode()` would succeed; several times faster, and no text is made.

    Arrow's validation of a string column is the fast one, so the line is looked at as such.
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
