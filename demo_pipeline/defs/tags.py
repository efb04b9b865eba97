"""The tags that this project writes on runs, and the owners it writes on assets.

Belongs here: names of tags and their values.
"""

from dagster._core.storage.tags import (
    MAX_RETRIES_TAG,
    PARTITION_NAME_TAG,
    PRIORITY_TAG,
    RUN_KEY_TAG,
    WILL_RETRY_TAG,
)

__all__ = [
    "BATCH_OUTCOMES_TAG",
    "BATCH_TAG",
    "EXCEEDED_TAG",
    "FINGERPRINT_TAG",
    "FORCE_TAG",
    "INTERRUPTED_OUTCOME",
    "KILLED_OUTCOME",
    "MAX_RETRIES_TAG",
    "MEMBER_TAG_PREFIX",
    "OUTCOME_TAG",
    "OWNERS",
    "PARTITION_NAME_TAG",
    "PRIORITY_TAG",
    "PROCESS_TAG",
    "REASON_TAG",
    "RUN_KEY_TAG",
    "SUPERSEDED_OUTCOME",
    "WAITING_OUTCOME",
    "WAITING_TAG",
    "WILL_RETRY_TAG",
]

OWNERS = ["team:demonstrations"]
FORCE_TAG = "demo_pipeline/force"
FINGERPRINT_TAG = "demo_pipeline/fingerprint"  # of the listing of the upload that the run is for
OUTCOME_TAG = "demo_pipeline/outcome"
REASON_TAG = "demo_pipeline/reason"  # why discovery requested the run
SUPERSEDED_OUTCOME = "superseded"
WAITING_OUTCOME = "waiting"  # something that passes by itself stopped it; WAITING_TAG says what
EXCEEDED_TAG = "demo_pipeline/exceeded"  # run id, stage and the limit that it exceeded
WAITING_TAG = "demo_pipeline/waiting_for"
KILLED_OUTCOME = "killed"  # the process of a run of the command line ended without a result
INTERRUPTED_OUTCOME = "interrupted"  # the same by Ctrl-C or a restart of the machine
PROCESS_TAG = "demo_pipeline/process"  # run id, then the `ProcessIdentity` that executes the run
BATCH_TAG = "demo_pipeline/batch"  # the demonstrations of a batch run, see batch_members.py
BATCH_OUTCOMES_TAG = "demo_pipeline/batch_outcomes"  # run id and the members that are not done
MEMBER_TAG_PREFIX = "demo_pipeline.member"
