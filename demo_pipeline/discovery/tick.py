"""One look at the uploads: bounded, and safe to cut off between any two of its steps.

Belongs here: the order of the steps and what comes of them. Nothing is launched here: a request
that is not launched is made again, with the same key, until it is.
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
from demo_pipeline.discovery.lost_runs import wake_lost
from demo_pipeline.discovery.polling import Poller
from demo_pipeline.discovery.run_history import RunHistory
from demo_pipeline.discovery.tick_budget import TickBudget
from demo_pipeline.settings import DiscoverySettings
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.objects.object_store import Objects

_SHARES = (0.2, 0.4, 0.6)  # of the seconds, after which confirming, listing and sweeping end


@dataclass(frozen=True, slots=True)
class Tick:
    """What came of one look.

    Attributes:
        new_ids: to register as partitions: every id that is requested or was found complete now.
        requests: runs to launch; of each id at most one.
        collisions: ids that several folders meet on, with the folders' names; none is requested.
        states: how many folders are in each state.
        sweep: how many sweeps over all objects were ended.
        pages: of listings, asked for in this look.
        polls: folders looked at by themselves in this look.
        errors: what storage refused, in order; it is tried again in later looks.
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


def tick(  # noqa: PLR0917 - what a look needs, in the order of its story
    objects: Objects,
    ledger: Ledger,
    launched: RunHistory,
    now: float,
    settings: DiscoverySettings,
    clock: Callable[[], float] = time.monotonic,
) -> Tick:
    """Look for new, changed and vanished uploads and say which runs are to be launched.

    Args:
        objects: the place of the uploads.
        ledger: kept between looks; an empty one is filled again.
        launched: what was launched, ever.
        now: epoch seconds by this machine's clock, which may jump.
        settings: thresholds and bounds.
        clock: seconds that pass, for the bound on a look's time.

    Raises:
        StorageError: the ledger cannot be read or written. What the uploads' place refuses is in
            `Tick.errors` instead.
    """
    try:
        return _tick(objects, ledger, launched, settings, TickBudget(ledger.begin(now), clock))
    except sqlite3.Error as error:
        raise StorageError(f"the ledger of uploads cannot be used: {error}; see its disk") from None


def _tick(
    objects: Objects,
    ledger: Ledger,
    launched: RunHistory,
    settings: DiscoverySettings,
    watch: TickBudget,
) -> Tick:
    confirming, listing, sweeping = (share * settings.seconds_per_tick for share in _SHARES)
    poller = Poller(objects, ledger, launched, settings, watch)
    wake_lost(ledger, launched, watch)
    poller.confirm(confirming)
    pages = list_folders(objects, ledger, watch, settings.pages_per_tick // 2, listing)
    pages += sweep(objects, ledger, watch, settings.pages_per_tick - pages, sweeping)
    collisions = ledger.collisions()
    poller.poll(collisions.keys())
    return Tick(
        new_ids=tuple(sorted(set(poller.complete))),
        requests=tuple(poller.requests),
        collisions={key: tuple(map(_printable, names)) for key, names in collisions.items()},
        states=ledger.counts(),
        sweep=ledger.listing(ListingKind.SWEEP).number,
        pages=pages,
        polls=poller.polls,
        errors=tuple(watch.errors),
    )


def _printable(name: str) -> str:
    return name.encode("utf-8", "surrogatepass").decode("utf-8", "backslashreplace")
