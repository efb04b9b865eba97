"""The timeline as lines of text for a terminal.

Belongs here: headings, columns and their order. What the timeline contains is in timeline.py.
"""

from collections.abc import Iterator

from demo_pipeline.actions.action_tables import BUCKETS
from demo_pipeline.actions.timeline import BucketCount, Timeline

_MAX_REJECTED = 20  # rejected lines that are printed


def render(timeline: Timeline) -> list[str]:
    """Lines of plain text, without markup and without typed characters."""
    return [
        f"{timeline.demonstration}: {timeline.headline}",
        *([timeline.title] if timeline.title else []),
        "",
        *_entries(timeline),
        "",
        *_section("Repairs", timeline.repairs),
        "",
        *_section(f"Rejected lines: {timeline.rejected_total}", tuple(_rejected(timeline)), ""),
        "",
        f"Event accounting: {timeline.lines} lines",
        *_accounting(timeline.accounting),
        "",
        f"Wheel: {timeline.wheel or 'not used'}",
        f"Unknown keys: {_unknown_keys(timeline)}",
    ]


def _section(heading: str, lines: tuple[str, ...], if_empty: str = "none") -> Iterator[str]:
    yield heading if lines or not if_empty else f"{heading}: {if_empty}"
    yield from (f"  {line}" for line in lines)


def _entries(timeline: Timeline) -> Iterator[str]:
    actions = sum(entry.raw_events > 0 for entry in timeline.entries)
    yield f"Actions: {actions}, pauses: {len(timeline.entries) - actions}"
    if not timeline.entries:
        return
    yield f"{'#':>5}{'second':>10}{'pre-move':>10}{'events':>8}  action"
    for entry in timeline.entries:
        pre_move = "" if entry.pre_move_seconds is None else f"{entry.pre_move_seconds:.3f}"
        flags = f"  [{', '.join(entry.flags)}]" if entry.flags else ""
        events = entry.raw_events or ""
        yield (
            f"{entry.number:>5}{entry.seconds:>10.3f}{pre_move:>10}{events:>8}"
            f"  {entry.description}{flags}"
        )


def _rejected(timeline: Timeline) -> Iterator[str]:
    shown = timeline.rejected[:_MAX_REJECTED]
    yield from (f"{problem.location}: {problem.message}" for problem in shown)
    more = timeline.rejected_total - len(shown)
    if more:
        yield f"and {more} more"


def _accounting(counts: tuple[BucketCount, ...]) -> Iterator[str]:
    for bucket in BUCKETS:
        of_bucket = [count for count in counts if count.bucket == bucket]
        reasons = ", ".join(f"{count.reason} {count.lines}" for count in of_bucket if count.reason)
        lines = sum(count.lines for count in of_bucket)
        yield f"  {bucket:<16}{lines:>8}  {reasons}".rstrip()


def _unknown_keys(timeline: Timeline) -> str:
    return ", ".join(f"{name} ({n})" for name, n in timeline.unknown_keys.items()) or "none"
