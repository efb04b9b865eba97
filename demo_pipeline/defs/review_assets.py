"""The decisions of people, as an asset that is observed: they are made on the review page.

Belongs here: what the UI shows of them. No text of a decision is in it.
"""

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable

import dagster as dg

from demo_pipeline.defs.tags import OWNERS
from demo_pipeline.review.review_store import REVIEWS, judged_decisions
from demo_pipeline.runs.workspace import Workspace

_SPEC = dg.AssetSpec(
    REVIEWS,
    group_name="trajectories",
    owners=OWNERS,
    kinds={"json"},
    code_version="1",
    description="Decisions of people: approval, corrections, bad steps, notes. An observation "
    "counts them. The sensor `new_uploads`, or `demo-pipeline run`, applies them: corrections in "
    "`records`, approval and rejection in the datasets. `demo-pipeline review` makes them.",
)


def _observe(workspace: dg.ResourceParam[Workspace]) -> dg.ObserveResult:
    """How many decisions there are, how many hold, and about how many demonstrations."""
    found = list(judged_decisions(workspace.store, ()))
    ids = hashlib.sha256("".join(sorted(one.id for one, _ in found)).encode())
    counts = {
        "decisions": len(found),
        "demonstrations": len({one.demonstration for one, _ in found}),
        **_counted(state for _, state in found),
        **_counted(one.kind for one, state in found if state == "holds"),
    }
    metadata = {name: dg.MetadataValue.int(number) for name, number in counts.items()}
    return dg.ObserveResult(metadata=metadata, data_version=dg.DataVersion(ids.hexdigest()[:16]))


def _counted(names: Iterable[str]) -> dict[str, int]:
    return {name.replace(" ", "_"): n for name, n in sorted(Counter(names).items())}


with warnings.catch_warnings():
    warnings.simplefilter("ignore", dg.BetaWarning)  # a test pins what this relies on
    observed_reviews = dg.multi_observable_source_asset(name="observe_reviews", specs=[_SPEC])(
        _observe
    )
