"""The troubles that a run has waited for in vain, as all of its processes know them.

Without this memory, every demonstration would wait for the same full disk: 105 seconds each.
"""

import hashlib
import mmap

_ENTRY = hashlib.sha256().digest_size  # bytes
_ENTRIES = 128  # different troubles; those of one run are few


class VainWaits:
    """Remembers each trouble that did not pass although a step was retried as often as allowed.

    A later step that meets the same trouble is not retried. Only the end of the run forgets it,
    because a success elsewhere does not prove that the trouble has passed: small files still fit
    on a full disk.

    The memory is shared with every process that is forked after it was made. It needs no disk, and
    no lock that a killed process could hold. If two processes write at the same moment, an entry
    may be lost; then that trouble is waited for again.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _ENTRIES * _ENTRY)

    def add(self, trouble: str) -> None:
        """Remember a trouble. When the memory is full, it is not remembered."""
        entry = _digest(trouble)
        for start in range(0, len(self._memory), _ENTRY):
            content = self._memory[start : start + _ENTRY]
            if content == entry:
                return
            if not any(content):
                self._memory[start : start + _ENTRY] = entry
                return

    def __contains__(self, trouble: str) -> bool:
        entry = _digest(trouble)
        starts = range(0, len(self._memory), _ENTRY)
        return any(self._memory[start : start + _ENTRY] == entry for start in starts)


def _digest(trouble: str) -> bytes:
    return hashlib.sha256(trouble.encode("utf-8", "replace")).digest()
