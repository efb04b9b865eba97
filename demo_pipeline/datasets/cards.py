"""Dataset cards: the README.md of a dataset, with the front matter that the Hugging Face Hub reads.

Belongs here: words and tables about a dataset. The numbers come from `facts`; nothing of what a
person typed is in a card.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from demo_pipeline import __version__
from demo_pipeline.datasets.charts import CHARTS_FOLDER
from demo_pipeline.datasets.dataset_stats import DatasetStats
from demo_pipeline.settings import DatasetSettings

CARD = "README.md"
_SHOWN = 20
_CHARTS = ("actions", "lengths", "applications", "resolutions", "splits")


@dataclass(frozen=True, slots=True)
class CardKind:
    """What differs between the cards.

    Attributes:
        title: after the name.
        about: what it is, a paragraph.
        unit: what is counted: steps, samples or records.
        files: (name, what it holds).
        data: path of a split's file, `{split}` in it; empty when `datasets` loads no splits.
        test: the test split's file, when its records have another form.
        loading: how to load it.
    """

    title: str
    about: str
    unit: str
    files: Sequence[tuple[str, str]]
    loading: str
    data: str = ""
    test: str = ""


def card_text(
    kind: CardKind,
    facts: DatasetStats,
    settings: DatasetSettings,
    left_out: Mapping[str, Mapping[str, int]],
) -> str:
    """The text of a card.

    Args:
        kind: which dataset.
        facts: what is in it.
        settings: what it was made with; names the license.
        left_out: what was counted out, by heading (trajectories, samples …) and reason.
    """
    name = settings.name_prefix
    parts = [
        _front_matter(kind, facts, settings),
        f"# {name}: {kind.title}",
        kind.about,
        "## How it was made",
        _made(settings),
        "## What is in it",
        _counts(kind, facts, left_out),
        *_tables(kind, facts),
        "## Pictures that may show the answer",
        _leaks(kind, facts, settings),
        "## Files",
        _table(("file", "holds"), [(f"`{file}`", holds) for file, holds in kind.files]),
        "## Loading",
        kind.loading,
        "## License",
        _license(settings),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(kind: CardKind, facts: DatasetStats, settings: DatasetSettings) -> str:
    lines = [
        f"license: {_yaml(settings.license)}",
        f"pretty_name: {_yaml(f'{settings.name_prefix}: {kind.title}')}",
        "tags:",
        "- computer-use",
        "- gui-agents",
    ]
    together = {split: kind.data for split in facts.splits if split != "test" or not kind.test}
    apart = {split: kind.test for split in facts.splits if split not in together}
    if kind.data and facts.splits:
        lines.append("configs:")
        lines += [*_config("default", together), *_config("test", apart)]
    return "\n".join(["---", *lines, "---"])


def _config(name: str, patterns: Mapping[str, str]) -> list[str]:
    if not patterns:
        return []
    files = [
        line
        for split, pattern in patterns.items()
        for line in (f"  - split: {split}", f"    path: {pattern.format(split=split)}")
    ]
    return [f"- config_name: {name}", "  data_files:", *files]


def _yaml(text: str) -> str:
    """A JSON string is a YAML string."""
    return json.dumps(text, ensure_ascii=False)


def _made(settings: DatasetSettings) -> str:
    return (
        f"demo_pipeline {__version__} made it from recordings of people at work: a log of their "
        "input, a video of the screen and scans of the accessibility tree. Input events became "
        "actions; each action got the frame and the tree from before it; no model took part. "
        "`reasoning` comes from a template and is nobody's words. What people typed is in the "
        "data, as the text of their `type` actions.\n\n"
        f"Settings (SHA-256): `{settings.fingerprint()[:16]}`, split seed {settings.seed}, ratios "
        f"{settings.train_ratio:g} / {settings.val_ratio:g} / {settings.test_ratio:g}."
    )


def _counts(kind: CardKind, facts: DatasetStats, left_out: Mapping[str, Mapping[str, int]]) -> str:
    rows = [
        (kind.unit, facts.samples),
        ("trajectories", facts.trajectories),
        ("tasks", facts.tasks),
        *(
            (f"{what} left out: {reason.replace('_', ' ')}", count)
            for what, reasons in left_out.items()
            for reason, count in sorted(reasons.items())
        ),
    ]
    return _table(("what", "count"), rows)


def _tables(kind: CardKind, facts: DatasetStats) -> Iterable[str]:
    if facts.splits:
        rows = [
            (name, split.samples, split.trajectories, split.tasks)
            for name, split in facts.splits.items()
        ]
        yield "### Splits"
        yield _table(("split", kind.unit, "trajectories", "tasks"), rows)
        yield "No task and no trajectory lies in two splits; all exports share one plan."
    yield "### Actions"
    yield _table(("action", kind.unit), _most(facts.actions))
    yield "### Applications"
    yield _table(("application", "trajectories"), _most(facts.applications))
    shown = [name for name in _CHARTS if name != "splits" or facts.splits]
    yield "\n".join(f"![{name}]({CHARTS_FOLDER}/{name}.png)" for name in shown)


def _most(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    rows = list(counts.items())
    rest = rows[_SHOWN:]
    more = [(f"{len(rest)} others", sum(count for _, count in rest))] if rest else []
    return [*rows[:_SHOWN], *more]


def _leaks(kind: CardKind, facts: DatasetStats, settings: DatasetSettings) -> str:
    rule = "take part (`include_leaky`)" if settings.include_leaky else "are left out of training"
    leaks = facts.leaks
    unavoidable = leaks.share(leaks.unavoidable_leaks)
    return (
        f"Leak rate: {leaks.share(leaks.leaks):.2%} ({leaks.leaks} of {leaks.pointer_actions} "
        f"{kind.unit} of pointing actions have a picture in which the pointer is at its target "
        f"already). Unavoidable leak rate: {unavoidable:.2%} ({leaks.unavoidable_leaks}: it lay "
        "there as the action before ended). "
        f"Such steps {rule}; the provenance of the trajectories marks each."
    )


def _license(settings: DatasetSettings) -> str:
    if settings.license == "unknown":
        return (
            "`unknown`: nobody has stated one. Set `datasets.license` "
            "(`DEMO_PIPELINE_DATASETS__LICENSE`) before sharing."
        )
    return f"`{settings.license}`"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(str(cell)) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
