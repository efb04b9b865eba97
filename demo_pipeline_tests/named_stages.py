"""Names for the stages of the training exports, for use in tests."""

from demo_pipeline.runs.stages import training_exports

_STAGES = {export.name: export.stage for export in training_exports().values()}
SFT_STAGE, MESSAGES_STAGE, CUDAG_STAGE = (_STAGES[n] for n in ("sft", "messages", "cudag"))
CUA_LITE_STAGE, AGENTNET_STAGE, ATIF_STAGE = (_STAGES[n] for n in ("cua_lite", "agentnet", "atif"))
STEP_LABELS_STAGE = _STAGES["step_labels"]
AGENTNETBENCH_STAGE = _STAGES["agentnetbench"]
