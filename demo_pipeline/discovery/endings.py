"""Runs that came to nothing after their upload was accepted.

Belongs here: waking those uploads. Whether one needs another run is decided when it is looked at.
"""

from demo_pipeline.discovery.bookmarks import Kind, Listing
from demo_pipeline.discovery.launched import Launched
from demo_pipeline.discovery.ledger import Ledger
from demo_pipeline.discovery.watch import Watch


def wake_lost(ledger: Ledger, launched: Launched, watch: Watch) -> None:
    """Look again at what was accepted for a run that was cancelled since, or died."""
    ended = launched.ended(ledger.listing(Kind.ENDS).token)
    resting = ledger.resting(ended.ids)
    lost = [key for key in resting if (last := launched.last(key)) and last.made_up_for]
    with ledger.transaction():
        ledger.wake(lost, watch.start)
        ledger.set_listing(Kind.ENDS, Listing(ended.token))
