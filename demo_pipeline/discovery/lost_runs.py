"""Uploads whose run was lost after the upload was accepted.

Belongs here: marking those uploads as due. Polling decides whether an upload needs another run.
"""

from demo_pipeline.discovery.cursors import ListingCursor, ListingKind
from demo_pipeline.discovery.ledger import Ledger
from demo_pipeline.discovery.run_history import RunHistory
from demo_pipeline.discovery.tick_budget import TickBudget


def mark_lost_due(ledger: Ledger, history: RunHistory, budget: TickBudget) -> None:
    """Mark accepted uploads as due when their run was cancelled, or died, since the last tick."""
    ended = history.ended(ledger.listing_cursor(ListingKind.ENDS).token)
    idle = ledger.idle(ended.ids)
    lost = [key for key in idle if _is_lost(history, key)]
    with ledger.transaction():
        ledger.mark_due(lost, budget.start)
        ledger.set_listing_cursor(ListingKind.ENDS, ListingCursor(ended.token))


def _is_lost(history: RunHistory, demonstration: str) -> bool:
    """Whether its run was lost; also when that cannot be read now, since a poll asks again."""
    try:
        last = history.last(demonstration)
    except Exception:  # noqa: BLE001 - the others are examined whatever it is
        return True
    return last is not None and last.should_retry
