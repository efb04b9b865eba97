"""The pauses before a run that something passing stopped is tried again.

Belongs here: how long they are, and how many such runs an hour may see. They grow, and never end:
when the trouble is over, everything goes on by itself.
"""

FIRST_PAUSE_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 1800.0
RETRIES_PER_HOUR = 120  # of all demonstrations; each failed run costs about 400 kB of history
_DOUBLINGS = 10  # more change nothing


def retry_pause(attempts: int, first: float = FIRST_PAUSE_SECONDS) -> float:
    """Seconds to wait after so many failed attempts: `first`, doubled after each, up to a limit."""
    return min(first * 2.0 ** min(max(attempts - 1, 0), _DOUBLINGS), LONGEST_PAUSE_SECONDS)
