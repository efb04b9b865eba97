"""Runs that came to nothing after their upload was accepted.

Belongs here: waking those uploads. Whether one needs another run is decided when it is looked at.
"""

from demo_pipeline.discovery.cursors import Listing, ListingKind
from demo_pipeline.discovery.ledger import Ledger
from demo_pipeline.discovery.run_history import RunHistory
from demo_pipeline.discovery.tick_budget import TickBudget


def wake_lost(ledger: Ledger, launched: RunHistory, watch: TickBudget) -> None:
    """Look again at what was accepted for a run that was cancelled since, or died."""
    ended = launched.ended(ledger.listing(ListingKind.ENDS).token)
    resting = ledger.resting(ended.ids)
    lost = [key for key in resting if (last := launched.last(key)) and last.should_retry]
    with ledger.transaction():
        ledger.wake(lost, watch.start)
        ledger.set_listing(ListingKind.ENDS, Listing(ended.token))
