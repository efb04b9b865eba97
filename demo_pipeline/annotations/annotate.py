"""Runs annotation providers over demonstrations, and estimates the cost of asking a model.

Each annotation is stored as soon as it arrives, so an interrupted run loses no answers.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from demo_pipeline.annotations.annotation_sources import ModelProvider, Provider
from demo_pipeline.annotations.annotation_store import AnnotationDocument, open_judged
from demo_pipeline.annotations.questions import ModelQuestion
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
    """The cost of asking a model.

    Attributes:
        demonstrations: number of demonstrations with unanswered questions.
        requests: number of requests, without retries.
        tokens: approximate number of tokens in the requests, without the answers.
        pictures: number of images in the requests.
    """

    demonstrations: int = 0
    requests: int = 0
    tokens: int = 0
    pictures: int = 0


@dataclass
class AnnotateCounts:
    """The counts of a run of annotation providers.

    Attributes:
        written: number of new annotation documents with at least one value.
        existing: number of annotation documents that the store already contained.
        escaped: number of escapes in new documents, counted as in `clean_text`.
        refused: number of refused answers, by reason.
        gave_up: number of questions whose answers were all refused. Later runs skip these
            questions.
        problems: the reasons why some demonstrations could not be annotated.
    """

    written: int = 0
    existing: int = 0
    escaped: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    gave_up: int = 0
    problems: list[Problem] = field(default_factory=list)

    def count_new(self, document: AnnotationDocument) -> None:
        """Counts a document that is not in the store yet."""
        if document.values:
            self.written += 1
        else:
            self.gave_up += 1
        self.escaped += document.escaped
        self.refused.update(document.refused)


def estimate(
    store: Store,
    ids: Sequence[str],
    models: Sequence[ModelProvider],
    privacy: PrivacySettings = _NO_RULES,
) -> Estimate:
    """Returns the cost of `annotate_all` with these models, without sending anything."""
    total = Estimate()
    reviews = Reviews(store)
    budget = replace(models[0].budget)
    for name in ids:
        try:
            judged = open_judged(store, name, reviews, privacy)
        except (MissingOutput, DemonstrationError):
            continue
        questions = list[ModelQuestion]()
        for model in models:
            questions += model.questions(judged)
        questions = budget.take(questions)
        total.demonstrations += bool(questions)
        total.requests += len(questions)
        total.tokens += sum(question.tokens for question in questions)
        total.pictures += sum(question.pictures for question in questions)
    return total


def annotate_all(
    store: Store,
    ids: Sequence[str],
    providers: Sequence[Provider],
    on_document: Callable[[], object] = lambda: None,
    privacy: PrivacySettings = _NO_RULES,
    *,
    dry_run: bool = False,
) -> AnnotateCounts:
    """Lets each provider annotate each demonstration, and stores the new annotations.

    A provider sees the annotations of earlier providers.

    Args:
        on_document: function to call after each annotation document, new or existing.
        privacy: settings for the redaction of trajectories and annotations.
        dry_run: whether to write nothing and only count the documents that would be written.

    Raises:
        ValueError: a server cannot be used. Answers that arrived before the error stay in the
            store.
    """
    counts = AnnotateCounts()
    reviews = Reviews(store)
    planned = set[str]()  # keys of the documents that a dry run would write
    for name, provider in product(ids, providers):
        try:
            judged = open_judged(store, name, reviews, privacy)
        except (MissingOutput, DemonstrationError) as error:
            if isinstance(error, MissingOutput):
                problems: Sequence[Problem] = [_no_trajectory(name)]
            else:
                problems = error.problems
            counts.problems += [problem for problem in problems if problem not in counts.problems]
            continue
        for document in provider(judged):
            is_new = document.key not in judged.documents | planned
            if is_new and dry_run:
                planned.add(document.key)
            elif is_new:
                is_new = store.add_document(document.key, sealed(document))
            if is_new:
                counts.count_new(document)
            else:
                counts.existing += 1
            on_document()
        _LOG.info("%s: annotated", name)
    return counts


def _no_trajectory(name: str) -> Problem:
    message = "has no trajectory"
    file = f"trajectories/{name}"
    return Problem("no_trajectory", file, message, remedy="run the pipeline", demonstration=name)


def undone_steps(store: Store, demonstration: str) -> Iterator[int]:
    """Yields the steps that the next step undoes, as found by the stage `triage`.

    Yields nothing if this stage has no output.
    """
    try:
        folder = store.open(TRIAGE_STAGE.output(demonstration))[0]
        rows = read_steps(folder)
    except MissingOutput:
        return
    yield from (row["step_index"] for row in rows if row["undone_by"])


def quest_objectives(store: Store, demonstration: str) -> Sequence[str]:
    """Returns the redacted objectives of the quest (the recorded task), or an empty sequence."""
    rows = read_provenance(open_shown(store, demonstration)[0] / PROVENANCE_FILE)
    if not rows:
        return ()
    return tuple(rows[0]["objectives"] or ())
