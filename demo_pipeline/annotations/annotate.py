"""Running providers over demonstrations: what it would cost, and what became of it.

Belongs here: the order of the work. Every document is written as soon as it is there, so a run that
was killed goes on where it was.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from demo_pipeline.annotations.annotation_sources import ModelProvider, Provider
from demo_pipeline.annotations.annotation_store import open_judged
from demo_pipeline.privacy.redaction_stage import open_shown
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.review.review_store import Reviews
from demo_pipeline.review.triage import TRIAGE_STAGE, read_steps
from demo_pipeline.settings import PrivacySettings
from demo_pipeline.store.documents import sealed
from demo_pipeline.store.errors import MissingOutput
from demo_pipeline.store.store import Store
from demo_pipeline.trajectories.provenance import read_provenance
from demo_pipeline.trajectories.trajectories import PROVENANCE_FILE

_LOG = logging.getLogger(__package__)

_NO_RULES = PrivacySettings()


@dataclass
class Estimate:
    """What a server would be asked: requests, about how many tokens, and pictures."""

    demonstrations: int = 0
    requests: int = 0
    tokens: int = 0
    pictures: int = 0


@dataclass
class AnnotateCounts:
    """What happened.

    Attributes:
        written: new documents that say something.
        known: those that were there already.
        escaped: tags and unseen characters in them.
        refused: answers, by reason.
        gave_up: questions whose answers were all refused; they are not asked again.
        problems: of demonstrations that cannot be annotated.
    """

    written: int = 0
    known: int = 0
    escaped: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    gave_up: int = 0
    problems: list[Problem] = field(default_factory=list)


def estimate(
    store: Store,
    ids: Sequence[str],
    models: Sequence[ModelProvider],
    privacy: PrivacySettings = _NO_RULES,
) -> Estimate:
    """What `annotate_all` would ask now. Nothing is sent."""
    found = Estimate()
    reviews = Reviews(store)
    budget = replace(models[0].budget)
    for name in ids:
        try:
            judged = open_judged(store, name, reviews, privacy)
        except (MissingOutput, DemonstrationError):
            continue
        questions = budget.take([one for model in models for one in model.questions(judged)])
        found.demonstrations += bool(questions)
        found.requests += len(questions)
        found.tokens += sum(one.tokens for one in questions)
        found.pictures += sum(one.pictures for one in questions)
    return found


def annotate_all(
    store: Store,
    ids: Sequence[str],
    providers: Sequence[Provider],
    on_document: Callable[[], object] = lambda: None,
    privacy: PrivacySettings = _NO_RULES,
    *,
    dry_run: bool = False,
) -> AnnotateCounts:
    """Let every provider annotate every demonstration; each sees what those before it said.

    A dry run writes nothing and counts what would be written.

    Raises whatever a server raises that cannot be used; what was answered is kept.
    """
    counts = AnnotateCounts()
    reviews = Reviews(store)
    planned = set[str]()  # keys that a dry run would write
    for name, provider in product(ids, providers):
        try:
            judged = open_judged(store, name, reviews, privacy)
        except (MissingOutput, DemonstrationError) as error:
            missing = [_missing(name)] if isinstance(error, MissingOutput) else error.problems
            counts.problems += [one for one in missing if one not in counts.problems]
            continue
        for document in provider(judged):
            new = document.key not in judged.documents | planned
            if new and dry_run:
                planned.add(document.key)
            elif new:
                new = store.add_document(document.key, sealed(document))
            counts.written += new and bool(document.values)
            counts.known += not new
            if new:
                counts.escaped += document.escaped
                counts.refused.update(document.refused)
                counts.gave_up += not document.values
            on_document()
        _LOG.info("%s: annotated", name)
    return counts


def _missing(name: str) -> Problem:
    message = "has no trajectory"
    file = f"trajectories/{name}"
    return Problem("no_trajectory", file, message, remedy="run the pipeline", demonstration=name)


def undone_steps(store: Store, demonstration: str) -> Iterator[int]:
    """Yield the steps that triage saw taken back by the next one; none without triage."""
    try:
        folder = store.open(TRIAGE_STAGE.output(demonstration))[0]
        rows = read_steps(folder)
    except MissingOutput:
        return
    yield from (row["step_index"] for row in rows if row["undone_by"])


def quest_objectives(store: Store, demonstration: str) -> Sequence[str]:
    """The objectives of the recording's quest as they may be shown; none when there is none."""
    rows = read_provenance(open_shown(store, demonstration)[0] / PROVENANCE_FILE)
    return tuple(rows[0]["objectives"] or ()) if rows else ()
