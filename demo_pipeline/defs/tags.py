"""The tags that this project writes on runs, and the owners it writes on assets.

Belongs here: names of tags and their values.
"""

from dagster._core.storage.tags import PARTITION_NAME_TAG, RUN_KEY_TAG, WILL_RETRY_TAG

__all__ = [
    "FINGERPRINT_TAG",
    "FORCE_TAG",
    "OUTCOME_TAG",
    "OWNERS",
    "PARTITION_NAME_TAG",
    "REASON_TAG",
    "RUN_KEY_TAG",
    "SUPERSEDED_OUTCOME",
    "WILL_RETRY_TAG",
]

OWNERS = ["team:demonstrations"]
FORCE_TAG = "demo_pipeline/force"
FINGERPRINT_TAG = "demo_pipeline/fingerprint"  # of the listing of the upload that the run is for
OUTCOME_TAG = "demo_pipeline/outcome"
REASON_TAG = "demo_pipeline/reason"  # why discovery requested the run
SUPERSEDED_OUTCOME = "superseded"
