"""The registry of the exports of whole trajectories, in the forms of other projects.

Belongs here: entries only, as in dataset_stages.py. `datasets.exports` names those that are built;
none of them is by default.
"""

from demo_pipeline.exports import trajectory_places as places
from demo_pipeline.pipeline import trajectory_export_builds as builds
from demo_pipeline.pipeline import trajectory_formats as formats
from demo_pipeline.pipeline.stage_types import Check, DatasetStage, TrainingExport

CUA_LITE_STAGE = DatasetStage(
    name="cua_lite_dataset",
    output="cua_lite",
    description="Whole trajectories in CUA-Lite's form, from which its adapters render the "
    "training data of many agents. A row is the longest stretch of a trajectory that can be shown "
    "and said.",
    kinds=frozenset({"parquet"}),
    code_version="3",
    section=lambda settings: settings.datasets,
    build=builds.run_cua_lite,
    checks=(
        Check(
            "cua_lite_rows",
            "Every row fits CUA-Lite's form; images have the content that their names say.",
            builds.verify_cua_lite,
            compared=("records",),
        ),
    ),
    export=TrainingExport(
        name="cua_lite", files="cua-lite/*.parquet", records=places.cua_lite_record_counts
    ),
    validated_as=formats.CUA_LITE_FORMAT,
    counts=("records", "steps"),
)

AGENTNET_STAGE = DatasetStage(
    name="agentnet_dataset",
    output="agentnet",
    description="Whole trajectories as AgentNet's JSON Lines: each action as pyautogui code, in "
    "the full form and in that of OpenCUA's thought generator.",
    kinds=frozenset({"json"}),
    code_version="3",
    section=lambda settings: settings.datasets,
    build=builds.run_agentnet,
    checks=(
        Check(
            "agentnet_lines",
            "Every line fits AgentNet's form; its code is nothing but the form's calls.",
            builds.verify_agentnet,
            compared=("records",),
        ),
    ),
    export=TrainingExport(name="agentnet", files="*.jsonl", records=places.agentnet_record_counts),
    validated_as=formats.AGENTNET_FORMAT,
    counts=("records", "steps"),
)

ATIF_STAGE = DatasetStage(
    name="atif_trajectories",
    output="atif",
    description="Trajectories in the Agent Trajectory Interchange Format 1.8, a file each with its "
    "images. What no screenshot shows is said in words.",
    kinds=frozenset({"json"}),
    code_version="3",
    section=lambda settings: settings.datasets,
    build=builds.run_atif,
    checks=(
        Check(
            "atif_files",
            "Every file fits the format; its calls are actions, its images open.",
            builds.verify_atif,
            compared=("records",),
        ),
    ),
    export=TrainingExport(
        name="atif", files="atif_trajectories.jsonl", records=places.atif_record_counts
    ),
    validated_as=formats.ATIF_FORMAT,
    counts=("records", "steps"),
)

# In the order in which they are built.
TRAJECTORY_STAGES: tuple[DatasetStage, ...] = (CUA_LITE_STAGE, AGENTNET_STAGE, ATIF_STAGE)
