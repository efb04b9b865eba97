"""Remembers, for all processes of a run, the transient errors for which retries did not help.

Without this memory, every demonstration would wait 105 seconds for the same full disk.
"""

import hashlib
import mmap

_ENTRY = hashlib.sha256().digest_size  # size of an entry in bytes
_ENTRIES = 128  # maximum number of remembered causes; a run rarely has more than a few


class VainWaits:
    """The causes of transient errors that outlasted all retries of a step.

    If a later step fails for a remembered cause, it is not retried. Causes are remembered until the
    end of the run. A success in between does not prove that a cause is gone: small files still fit
    on a full disk.

    The memory is shared with all processes that are forked after its creation. It does not need the
    disk. It has no lock, because a killed process could leave a lock locked. Therefore, an entry
    may be lost if two processes write at the same moment. Another step is then retried in vain.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _ENTRIES * _ENTRY)

    def add(self, trouble: str) -> None:
        """Remembers a cause, unless the memory is full.

        Args:
            trouble: the cause, as in `TransientError.trouble`.
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
