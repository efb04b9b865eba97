"""The two listings that continue from tick to tick: folders, to find new ones, and every object.

Belongs here: writing pages into the ledger. A page decides nothing; it only marks folders as due
for a poll. The order of keys does not matter, and an id may be on several pages.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from demo_pipeline.discovery.cursors import ListingCursor, ListingKind
from demo_pipeline.discovery.decisions import (
    ObservedFile,
    UploadRecord,
    UploadState,
    observed_file,
    restart_wait,
)
from demo_pipeline.discovery.ledger import Ledger
from demo_pipeline.discovery.tick_budget import TickBudget
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.ids import safe_id
from demo_pipeline.storage.objects.object_store import Objects, Page

_MAX_REFUSALS = 3  # of one token; then it counts as expired and the listing starts again


def list_folders(
    objects: Objects, ledger: Ledger, budget: TickBudget, pages: int, until: float
) -> int:
    """Read some pages of folders.

    Args:
        objects: the uploads.
        ledger: what is known.
        budget: the tick's time.
        pages: the most pages to read.
        until: seconds of the tick after which only one page is read.

    Returns:
        How many pages were requested.
    """

    def store(page: Page, _: ListingCursor) -> None:
        names = sorted({prefix.rstrip("/") for prefix in page.prefixes})
        _store_names(ledger, [name for name in names if _is_visible(name)], budget.start)

    return _read_pages(
        ListingKind.FOLDERS,
        fetch=objects.list_prefixes,
        store=store,
        ledger=ledger,
        budget=budget,
        pages=pages,
        until=until,
    )


def sweep(objects: Objects, ledger: Ledger, budget: TickBudget, pages: int, until: float) -> int:
    """Read some pages of all objects; the end of a sweep marks what it did not see as due.

    Arguments and result are those of `list_folders`.
    """

    def store(page: Page, cursor: ListingCursor) -> None:
        _store_objects(ledger, page, cursor.number, budget.start)
        if page.token is None:
            ledger.mark_unseen_due(cursor.number, budget.start)

    return _read_pages(
        ListingKind.SWEEP,
        fetch=objects.list_page,
        store=store,
        ledger=ledger,
        budget=budget,
        pages=pages,
        until=until,
    )


def _read_pages(
    kind: ListingKind,
    *,
    fetch: Callable[[str, str | None], Page],
    store: Callable[[Page, ListingCursor], None],
    ledger: Ledger,
    budget: TickBudget,
    pages: int,
    until: float,
) -> int:
    for used in range(pages):
        if used and budget.spent() >= until:
            return used
        cursor = ledger.listing_cursor(kind)
        try:
            page = fetch("", cursor.token)
        except StorageError as error:
            budget.errors.append(str(error))
            ledger.set_listing_cursor(kind, _refused(cursor))
            return used + 1
        ended = page.token is None
        with ledger.transaction():
            store(page, cursor)
            ledger.set_listing_cursor(kind, ListingCursor(page.token, cursor.number + ended))
        if ended:
            return used + 1
    return pages


def _refused(cursor: ListingCursor) -> ListingCursor:
    failures = cursor.failures + 1
    if failures < _MAX_REFUSALS:
        return replace(cursor, failures=failures)
    return ListingCursor(None, cursor.number)


def _is_visible(name: str) -> bool:
    return name != "" and not name.startswith(".")


def _new(name: str, time: float) -> UploadRecord:
    return UploadRecord(name, safe_id(name), changed=time, due=time)


def _store_names(ledger: Ledger, names: list[str], time: float) -> dict[str, UploadRecord]:
    """Record new and returned folders; returns the records of all of them, by name."""
    known = ledger.records(names)
    returned = [
        record for record in known.values() if record.missing or record.state is UploadState.GONE
    ]
    written = [_new(name, time) for name in names if name not in known]
    written += [_returned(record, time) for record in returned]
    ledger.save(written)
    return known | {record.name: record for record in written}


def _store_objects(ledger: Ledger, page: Page, number: int, time: float) -> None:
    folders: dict[str, dict[str, ObservedFile]] = defaultdict(dict)
    for info in page.objects:
        name, slash, rest = info.key.partition("/")
        if slash and _is_visible(name):
            folders[name] |= {rest: observed_file(rest, info)} if rest in RECORDING_FILES else {}
    known = _store_names(ledger, list(folders), time)
    ledger.save(
        _due_by(known[name], time)
        for name, files in folders.items()
        if _differs(known[name], files)
    )
    ledger.mark_seen(number, folders.items())


def _differs(record: UploadRecord, files: dict[str, ObservedFile]) -> bool:
    return any(file not in record.files for file in files.values())


def _due_by(record: UploadRecord, time: float) -> UploadRecord:
    soon = time if record.due is None else min(record.due, time)
    if record.state is UploadState.PENDING:  # it was stable and is no longer
        return restart_wait(record, soon)
    return replace(record, due=soon)


def _returned(record: UploadRecord, time: float) -> UploadRecord:
    state = UploadState.PENDING if record.state is UploadState.GONE else record.state
    return replace(record, state=state, missing=0, missing_sweep=-1, due=time)
