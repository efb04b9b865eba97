"""The figures of the benchmark: what they count, what is better, and their table."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields

HIGHER_IS_BETTER = (
    "actions_right",
    "texts_right",
    "waits_found",
    "targets_right",
    "key_targets_right",
    "changes_right",
)
LOWER_IS_BETTER = (
    "actions_hidden",
    "actions_invented",
    "texts_wrong",
    "waits_invented",
    "targets_wrong",
    "targets_missing",
    "key_targets_wrong",
    "key_targets_invented",
    "screenshots_late",
    "screenshots_missing",
    "leaks_avoidable",
    "clock_error_ms",
    "changes_missed",
)
_CLOCK_TOLERANCE_MS = 5  # the clock's error is measured, all other figures are counted


@dataclass
class Figures:
    """What one recording, or all of them, give.

    Attributes:
        actions: actions of the truth list; `actions_right` those that a step answers with the same
            kind, place and keys; `actions_hidden` those of which the trajectory says that no
            screenshot shows them; `actions_invented` steps that no action explains.
        texts: typed texts; those left out are in no training record.
        waits: waits of two seconds and more.
        targets: pointer actions on a widget. `targets_missing` have none although the newest scan
            holds the widget and the video shows no change of it; the others are rightly without.
        key_targets: keys whose widget is known; `key_targets_invented` are of keys of a program
            without an accessibility tree, where no widget has the keyboard.
        screenshots_late: screenshots from the press or later.
        leaks_avoidable: screenshots that show the pointer at the target, though the person had
            decided while it was elsewhere.
        clock_error_ms: the largest difference between the pipeline's clock and the video's.
        changes: steps whose effect the video shows with the pointer at rest; `changes_missed` say
            that nothing changed although it did.
    """

    actions: int = 0
    actions_right: int = 0
    actions_hidden: int = 0
    actions_invented: int = 0
    texts: int = 0
    texts_right: int = 0
    texts_wrong: int = 0
    texts_left_out: int = 0
    waits: int = 0
    waits_found: int = 0
    waits_invented: int = 0
    targets: int = 0
    targets_right: int = 0
    targets_wrong: int = 0
    targets_missing: int = 0
    key_targets: int = 0
    key_targets_right: int = 0
    key_targets_wrong: int = 0
    key_targets_invented: int = 0
    key_targets_missing: int = 0
    screenshots_late: int = 0
    screenshots_missing: int = 0
    leaks_avoidable: int = 0
    clock_error_ms: int = 0
    changes: int = 0
    changes_right: int = 0
    changes_missed: int = 0


def total(figures: Iterable[Figures]) -> Figures:
    """The sum; of the clock's error the largest."""
    result = Figures()
    for part in figures:
        for field in fields(Figures):
            value = getattr(part, field.name)
            if field.name == "clock_error_ms":
                result.clock_error_ms = max(result.clock_error_ms, value)
            else:
                setattr(result, field.name, getattr(result, field.name) + value)
    return result


def worse_figures(recorded: Figures, measured: Figures) -> list[str]:
    """A line for each figure that is worse than the recorded one."""
    worse = [name for name in HIGHER_IS_BETTER if getattr(measured, name) < getattr(recorded, name)]
    for name in LOWER_IS_BETTER:
        tolerance = _CLOCK_TOLERANCE_MS if name == "clock_error_ms" else 0
        if getattr(measured, name) > getattr(recorded, name) + tolerance:
            worse.append(name)
    return [
        f"{name}: {getattr(measured, name)}, recorded {getattr(recorded, name)}" for name in worse
    ]


def better_figures(recorded: Figures, measured: Figures) -> list[str]:
    """A line for each figure that is better than the recorded one."""
    return worse_figures(measured, recorded)


def as_json(figures: Mapping[str, Figures]) -> dict[str, dict[str, int]]:
    """Recording → figure → value."""
    return {name: asdict(figures[name]) for name in sorted(figures)}


def markdown_table(figures: Mapping[str, Figures]) -> str:
    """The table for pages: the sums over all recordings."""
    sums = total(figures.values())
    targets_without = sums.targets - sums.targets_right - sums.targets_wrong - sums.targets_missing
    texts = f"{sums.texts_wrong} false, {sums.texts_left_out} left out"
    targets = (
        f"{sums.targets_wrong} false, {sums.targets_missing} missed, {targets_without} unknown"
    )
    key_targets = (
        f"{sums.key_targets_wrong} false, {sums.key_targets_invented} invented,"
        f" {sums.key_targets_missing} unknown"
    )
    screenshots = f"{sums.screenshots_late} late, {sums.leaks_avoidable} avoidable leaks"
    actions = f"{sums.actions_hidden} hidden, {sums.actions_invented} invented"
    rows = [
        ("label", "in the truth", "right", "otherwise"),
        ("---", "---", "---", "---"),
        ("actions", sums.actions, sums.actions_right, actions),
        ("typed texts", sums.texts, sums.texts_right, texts),
        ("waits", sums.waits, sums.waits_found, f"{sums.waits_invented} invented"),
        ("targets of the pointer", sums.targets, sums.targets_right, targets),
        ("targets of keys", sums.key_targets, sums.key_targets_right, key_targets),
        ("screen changed", sums.changes, sums.changes_right, f"{sums.changes_missed} denied"),
        ("screenshots", "", "", screenshots),
        ("clock", "", "", f"at most {sums.clock_error_ms} ms off"),
    ]
    return "".join(f"| {' | '.join(str(cell) for cell in row)} |\n" for row in rows)
