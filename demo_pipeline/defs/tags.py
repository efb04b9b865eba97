"""What this project writes on runs, so that anybody can tell what a run was for.

Belongs here: names of tags and their values.
"""

from dagster._core.storage.tags import PARTITION_NAME_TAG, RUN_KEY_TAG, WILL_RETRY_TAG

__all__ = [
    "FINGERPRINT_TAG",
    "FORCE_TAG",
    "OUTCOME_TAG",
    "PARTITION_NAME_TAG",
    "RUN_KEY_TAG",
    "SUPERSEDED",
    "WILL_RETRY_TAG",
]

FORCE_TAG = "demo_pipeline/force"
FINGERPRINT_TAG = "demo_pipeline/fingerprint"  # of the listing of the upload that the run is for
OUTCOME_TAG = "demo_pipeline/outcome"
SUPERSEDED = "superseded"
