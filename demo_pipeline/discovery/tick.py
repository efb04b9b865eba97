"""One tick of discovery: bounded in time, and safe to interrupt between any two of its steps.

Belongs here: the order of the steps and their result. Nothing is launched here: a request that is
not launched is repeated, with the same key, until it is.
"""

import json
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass

from demo_pipeline.discovery.cursors import ListingKind
from demo_pipeline.discovery.decisions import Request, UploadState
from demo_pipeline.discovery.ledger import Ledger
from demo_pipeline.discovery.listing import list_folders, sweep
from demo_pipeline.discovery.lost_runs import mark_lost_due
from demo_pipeline.discovery.polling import Poller
from demo_pipeline.discovery.run_history import RunHistory
from demo_pipeline.discovery.tick_budget import TickBudget
from demo_pipeline.settings import DiscoverySettings
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.ids import printable_name
from demo_pipeline.storage.objects.object_store import Objects

_SHARES = (0.2, 0.4, 0.6)  # of `seconds_per_tick`: the ends of confirming, listing and sweeping


@dataclass(frozen=True, slots=True)
class Tick:
    """The result of one tick.

    Attributes:
        new_ids: to register as partitions: every id that is requested or was complete in this tick.
        requests: runs to launch, at most one per id.
        collisions: ids that several folders have, with the folders' names; none is requested.
        states: how many folders are in each state.
        sweep: number of completed sweeps over all objects.
        pages: number of pages requested from listings in this tick.
        polls: number of folders polled in this tick.
        errors: messages of storage errors, in order; later ticks try again.
    """

    new_ids: tuple[str, ...]
    requests: tuple[Request, ...]
    collisions: dict[str, tuple[str, ...]]
    states: dict[UploadState, int]
    sweep: int
    pages: int
    polls: int
    errors: tuple[str, ...]

    @property
    def cursor(self) -> str:
        """Counts as JSON, under 1 KB, for people; nothing is read back from it."""
        counts = {state.value: count for state, count in self.states.items()}
        return json.dumps({**counts, "sweep": self.sweep}, sort_keys=True)


def tick(  # noqa: PLR0917 - what a tick needs, in the order of its steps
    objects: Objects,
    ledger: Ledger,
    history: RunHistory,
    now: float,
    settings: DiscoverySettings,
    clock: Callable[[], float] = time.monotonic,
) -> Tick:
    """Find new, changed and vanished uploads, and the runs to launch for them.

    Args:
        objects: the uploads.
        ledger: kept between ticks; an empty one is filled again.
        history: the runs that were ever launched.
        now: epoch seconds by this machine's clock, which may jump.
        settings: thresholds and bounds.
        clock: a clock in seconds, for the bound on a tick's time.

    Raises:
        StorageError: the ledger cannot be read or written. Errors of the uploads' storage are in
            `Tick.errors` instead.
    """
    try:
        return _tick(objects, ledger, history, settings, TickBudget(ledger.begin_tick(now), clock))
    except sqlite3.Error as error:
        raise StorageError(
            f"the ledger of uploads cannot be used: {error}; check its disk"
        ) from None


def _tick(
    objects: Objects,
    ledger: Ledger,
    history: RunHistory,
    settings: DiscoverySettings,
    budget: TickBudget,
) -> Tick:
    confirming, listing, sweeping = (share * settings.seconds_per_tick for share in _SHARES)
    poller = Poller(objects, ledger, history, settings, budget)
    mark_lost_due(ledger, history, budget)
    poller.confirm_launched(confirming)
    pages = list_folders(objects, ledger, budget, settings.pages_per_tick // 2, listing)
    pages += sweep(objects, ledger, budget, settings.pages_per_tick - pages, sweeping)
    collisions = ledger.collisions()
    poller.poll(collisions.keys())
    return Tick(
        new_ids=tuple(sorted(set(poller.complete))),
        requests=tuple(poller.requests),
        collisions={key: tuple(map(printable_name, names)) for key, names in collisions.items()},
        states=ledger.counts(),
        sweep=ledger.listing_cursor(ListingKind.SWEEP).number,
        pages=pages,
        polls=poller.polls,
        errors=tuple(budget.errors),
    )
