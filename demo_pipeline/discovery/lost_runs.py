"""Uploads whose run was lost, or has to wait, after the upload was accepted.

Belongs here: marking those uploads as due. Polling decides whether an upload needs another run.
"""

import logging

from demo_pipeline.discovery.cursors import ListingCursor, ListingKind
from demo_pipeline.discovery.ledger import Ledger
from demo_pipeline.discovery.run_history import RunHistory
from demo_pipeline.discovery.tick_budget import TickBudget

_LOG = logging.getLogger(__package__)


def mark_lost_due(ledger: Ledger, history: RunHistory, budget: TickBudget) -> None:
    """Mark accepted uploads as due when their run was lost or has to wait since the last tick."""
    ended = history.ended(ledger.listing_cursor(ListingKind.ENDS).token)
    pauses = {key: _pause(history, key) for key in ledger.idle(ended.ids)}
    with ledger.transaction():
        for key, pause in pauses.items():
            if pause is not None:
                ledger.mark_due([key], budget.start + pause)
        ledger.set_listing_cursor(ListingKind.ENDS, ListingCursor(ended.token))


def _pause(history: RunHistory, demonstration: str) -> float | None:
    """Seconds until its next run; None when none follows.

    0 also when the history cannot be read now: the poll reads it again.
    """
    try:
        last = history.last(demonstration)
    except Exception as error:  # noqa: BLE001 - the others are examined whatever it is
        _LOG.debug("%s: its runs are read again later (%s)", demonstration, type(error).__name__)
        return 0.0
    return last.retry_after if last is not None else None
