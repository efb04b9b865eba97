"""Remembers, for all processes of a run, which transient errors outlasted all retries.

Without this memory, every demonstration would wait 105 seconds for the same full disk.
"""

import hashlib
import mmap

_ENTRY = hashlib.sha256().digest_size  # size of an entry in bytes
_ENTRIES = 128  # maximum number of remembered causes


class VainWaits:
    """The causes of transient errors that outlasted all retries of a step.

    A later step that fails for a remembered cause is not retried. A success does not remove a
    cause: a full disk, for example, may still have room for small files.

    Processes that are forked later share the memory. The memory has no lock, because a process that
    is killed could never release it. If two processes write at the same moment, an entry may be
    lost.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _ENTRIES * _ENTRY)

    def add(self, trouble: str) -> None:
        """Remembers a cause, unless the memory is full.

        Args:
            trouble: see `TransientError.trouble`.
        """
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
