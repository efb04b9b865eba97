"""The two listings that go on from look to look: of folders, for what is new, and of every object.

Belongs here: taking pages of them into the ledger. A page decides nothing; it only says which
folders are to be looked at. No order of keys is relied on, and an id may lie on several pages.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from demo_pipeline.discovery.cursors import Listing, ListingKind
from demo_pipeline.discovery.decisions import File, UploadRecord, UploadState, described, look_again
from demo_pipeline.discovery.ledger import Ledger
from demo_pipeline.discovery.tick_budget import TickBudget
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.ids import safe_id
from demo_pipeline.storage.objects.object_store import Objects, Page
from demo_pipeline.storage.uploads.upload_listing import UPLOAD_FILES

_PATIENCE = 3  # refusals of one token; then it counts as expired and the listing starts again


def list_folders(
    objects: Objects, ledger: Ledger, watch: TickBudget, pages: int, until: float
) -> int:
    """Take some pages of folders.

    Args:
        objects: the place of the uploads.
        ledger: what is known.
        watch: the look's time.
        pages: at most so many.
        until: seconds of the look after which there is only one.

    Returns:
        How many pages were asked for.
    """

    def take(page: Page, _: Listing) -> None:
        names = sorted({prefix.rstrip("/") for prefix in page.prefixes})
        _take_names(ledger, [name for name in names if _is_shown(name)], watch.start)

    return _go_on(
        ListingKind.FOLDERS,
        fetch=objects.list_prefixes,
        take=take,
        ledger=ledger,
        watch=watch,
        pages=pages,
        until=until,
    )


def sweep(objects: Objects, ledger: Ledger, watch: TickBudget, pages: int, until: float) -> int:
    """The same over all objects. At the end of one sweep whatever it did not see is woken."""

    def take(page: Page, listing: Listing) -> None:
        _take_objects(ledger, page, listing.number, watch.start)
        if page.token is None:
            ledger.wake_unseen(listing.number, watch.start)

    return _go_on(
        ListingKind.SWEEP,
        fetch=objects.list_page,
        take=take,
        ledger=ledger,
        watch=watch,
        pages=pages,
        until=until,
    )


def _go_on(
    kind: ListingKind,
    *,
    fetch: Callable[[str, str | None], Page],
    take: Callable[[Page, Listing], None],
    ledger: Ledger,
    watch: TickBudget,
    pages: int,
    until: float,
) -> int:
    for used in range(pages):
        if used and watch.spent() >= until:
            return used
        listing = ledger.listing(kind)
        try:
            page = fetch("", listing.token)
        except StorageError as error:
            watch.errors.append(str(error))
            ledger.set_listing(kind, _refused(listing))
            return used + 1
        ended = page.token is None
        with ledger.transaction():
            take(page, listing)
            ledger.set_listing(kind, Listing(page.token, listing.number + ended))
        if ended:
            return used + 1
    return pages


def _refused(listing: Listing) -> Listing:
    failures = listing.failures + 1
    if failures < _PATIENCE:
        return replace(listing, failures=failures)
    return Listing(None, listing.number)


def _is_shown(name: str) -> bool:
    return name != "" and not name.startswith(".")


def _new(name: str, time: float) -> UploadRecord:
    return UploadRecord(name, safe_id(name), changed=time, due=time)


def _take_names(ledger: Ledger, names: list[str], time: float) -> dict[str, UploadRecord]:
    """Note what is new or returned; what is now known of all of them."""
    known = ledger.entries(names)
    returned = [each for each in known.values() if each.missing or each.state is UploadState.GONE]
    noted = [_new(name, time) for name in names if name not in known]
    noted += [_returned(each, time) for each in returned]
    ledger.save(noted)
    return known | {each.name: each for each in noted}


def _take_objects(ledger: Ledger, page: Page, number: int, time: float) -> None:
    found: dict[str, dict[str, File]] = defaultdict(dict)
    for each in page.objects:
        name, slash, rest = each.key.partition("/")
        if slash and _is_shown(name):
            found[name] |= {rest: described(rest, each)} if rest in UPLOAD_FILES else {}
    known = _take_names(ledger, list(found), time)
    ledger.save(
        _woken(known[name], time) for name, files in found.items() if _differs(known[name], files)
    )
    ledger.mark_seen(number, found.items())


def _differs(entry: UploadRecord, files: dict[str, File]) -> bool:
    return any(file not in entry.files for file in files.values())


def _woken(entry: UploadRecord, time: float) -> UploadRecord:
    soon = time if entry.due is None else min(entry.due, time)
    if entry.state is UploadState.PENDING:  # whatever was quiet is no longer
        return look_again(entry, soon)
    return replace(entry, due=soon)


def _returned(entry: UploadRecord, time: float) -> UploadRecord:
    state = UploadState.PENDING if entry.state is UploadState.GONE else entry.state
    return replace(entry, state=state, missing=0, missing_sweep=-1, due=time)
