"""The tags that this project writes on runs, and the owners it writes on assets.

Belongs here: names of tags and their values. Dagster's own are written out, so that commands that
only read tags need not import it; a test compares them.
"""

MAX_RETRIES_TAG = "dagster/max_retries"
PARTITION_NAME_TAG = "dagster/partition"
PRIORITY_TAG = "dagster/priority"
RUN_KEY_TAG = "dagster/run_key"
WILL_RETRY_TAG = "dagster/will_retry"
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
ONE_AT_A_TIME_TAG = "demo_pipeline/one_at_a_time"  # name of a job; dagster.yaml knows the key
MEMBER_TAG_PREFIX = "demo_pipeline.member"
