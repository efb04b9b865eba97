"""Forgetting a demonstration: its outputs, its documents, and the datasets that hold it.

Belongs here: what of a store goes. It goes at once, without the grace period: who still reads it
gets an error. The upload, and Dagster's records, are removed by the command.
"""

from collections.abc import Collection

from demo_pipeline.review.review_store import REVIEWS
from demo_pipeline.store.store import Store
from demo_pipeline.store.version_manifest import Version

DOCUMENTS = ("quarantine", REVIEWS, "annotations")


def forget_demonstration(
    store: Store, demonstration: str, stages: Collection[str]
) -> tuple[list[str], list[str], int]:
    """Remove a demonstration from a store, with all versions, and every dataset that holds it.

    Args:
        store: of the pipeline.
        demonstration: its id.
        stages: names of the stages of a demonstration, whose outputs hold no other one.

    Returns:
        Its outputs; the datasets that held it, or were made of one that did, which the next run
        builds again; and how many quarantine records, decisions and annotations went.
    """
    versions = list(store.versions())
    names = {name for name, _ in versions} | set(store.outputs())
    own = {name for name in names if name.partition("/")[2] == demonstration}
    others = [(name, version) for name, version in versions if name not in own]
    datasets = [pair for pair in others if pair[1] is None or pair[1].manifest.stage not in stages]
    held: set[str] = set()
    made_of: set[str] = {demonstration}
    while fresh := {name for name, one in datasets if _holds(one, made_of, own)} - held:
        held |= fresh
        made_of |= {one.manifest.stage for name, one in datasets if one and name in fresh}
    for name in sorted(held | own):
        store.erase(name)
    documents = sum(store.delete_documents(f"{folder}/{demonstration}") for folder in DOCUMENTS)
    documents += store.delete_document(f"quarantine/{demonstration}.json")  # of older stores
    return sorted(own), sorted(held), documents


def _holds(version: Version | None, made_of: Collection[str], own: Collection[str]) -> bool:
    """Whether a dataset was built from one of these; one that cannot be read may have been."""
    if version is None:
        return True
    manifest = version.manifest
    links = any(link.output in own for link in manifest.links.values())
    return links or not manifest.inputs.keys().isdisjoint(made_of)
