"""A demonstration's story as lines of text for a terminal.

Belongs here: headings, columns and their order. Not here: what is told (story.py).
"""

from collections.abc import Iterator

from demo_pipeline.actions.action_tables import BUCKETS
from demo_pipeline.actions.timeline import BucketCount, Timeline

_REJECTED_SHOWN = 20


def render(story: Timeline) -> list[str]:
    """Plain lines, without markup and without what was typed."""
    return [
        f"{story.demonstration}: {story.headline}",
        *([story.title] if story.title else []),
        "",
        *_time_line(story),
        "",
        *_section("Repairs", story.repairs),
        "",
        *_section(f"Rejected lines: {story.rejected_total}", tuple(_rejected(story)), ""),
        "",
        f"Ledger: {story.lines} lines",
        *_ledger(story.ledger),
        "",
        f"Wheel: {story.wheel or 'not turned'}",
        f"Unknown keys: {_unknown_keys(story)}",
    ]


def _section(heading: str, lines: tuple[str, ...], empty: str = "none") -> Iterator[str]:
    yield heading if lines or not empty else f"{heading}: {empty}"
    yield from (f"  {line}" for line in lines)


def _time_line(story: Timeline) -> Iterator[str]:
    actions = sum(moment.raw_events > 0 for moment in story.moments)
    yield f"Actions: {actions}, pauses: {len(story.moments) - actions}"
    if not story.moments:
        return
    yield f"{'#':>5}{'second':>10}{'approach':>10}{'events':>8}  action"
    for moment in story.moments:
        approach = "" if moment.pre_move_seconds is None else f"{moment.pre_move_seconds:.3f}"
        flags = f"  [{', '.join(moment.flags)}]" if moment.flags else ""
        events = moment.raw_events or ""
        yield (
            f"{moment.number:>5}{moment.seconds:>10.3f}{approach:>10}{events:>8}"
            f"  {moment.what}{flags}"
        )


def _rejected(story: Timeline) -> Iterator[str]:
    shown = story.rejected[:_REJECTED_SHOWN]
    yield from (f"{problem.location}: {problem.message}" for problem in shown)
    more = story.rejected_total - len(shown)
    if more:
        yield f"and {more} more"


def _ledger(sums: tuple[BucketCount, ...]) -> Iterator[str]:
    for bucket in BUCKETS:
        mine = [one for one in sums if one.bucket == bucket]
        reasons = ", ".join(f"{one.reason} {one.lines}" for one in mine if one.reason)
        yield f"  {bucket:<16}{sum(one.lines for one in mine):>8}  {reasons}".rstrip()


def _unknown_keys(story: Timeline) -> str:
    return ", ".join(f"{name} ({n})" for name, n in story.unknown_keys.items()) or "none"
