"""The tags that this project writes on runs, and the owners it writes on assets.

Belongs here: names of tags and their values. The UI shows no tag that begins with `.dagster/`: what
only programs read has such a name. Those of Dagster that are written out here are in its manual.
"""

MAX_RETRIES_TAG = "dagster/max_retries"
PARTITION_NAME_TAG = "dagster/partition"
PRIORITY_TAG = "dagster/priority"
OUR_REPOSITORY = "__repository__@demo_pipeline"  # the location's name as in workspace.yaml
OWNERS = ["team:demonstrations"]
PARTITIONS_NAME = "demonstrations"

# For people.
FORCE_TAG = "demo_pipeline/force"
OUTCOME_TAG = "demo_pipeline/outcome"
REASON_TAG = "demo_pipeline/reason"  # why discovery requested the run
SUPERSEDED_OUTCOME = "superseded"
WAITING_OUTCOME = "waiting"  # something that passes by itself stopped it; WAITING_TAG says what
WAITING_TAG = "demo_pipeline/waiting_for"
BATCH_TAG = "demo_pipeline/batch"  # number of demonstrations of a batch run; in dagster.yaml

# For programs.
STATE_TAG = ".dagster/demo_pipeline_state"  # what a run of dataset stages was launched for
PROCESS_TAG = ".dagster/demo_pipeline_process"  # run id, then the executing `ProcessIdentity`
MEMBERS_TAG = ".dagster/demo_pipeline_members"  # see demonstration_runs.py
MEMBER_TAG_PREFIX = ".dagster/demo_pipeline_member"
ONE_AT_A_TIME_TAG = ".dagster/demo_pipeline_one_at_a_time"  # name of a job; in dagster.yaml
BATCH_OUTCOMES_TAG = ".dagster/demo_pipeline_outcomes"  # run id and the members that are not done
