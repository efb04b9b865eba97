"""How `demo-pipeline validate` recognises and validates the forms of whole trajectories.

Belongs here: one constant per form, as in validated_formats.py.
"""

from pathlib import Path

from demo_pipeline.exports.agentnet import AGENTNET_META, validate_agentnet
from demo_pipeline.exports.atif import ATIF_LIST, validate_atif, validate_atif_file
from demo_pipeline.exports.cua_lite_models import LITE_ROOT
from demo_pipeline.exports.cua_lite_validator import validate_cua_lite
from demo_pipeline.pipeline.stage_types import ValidatedFormat
from demo_pipeline.problems import Problem
from demo_pipeline.settings import Settings


def _validate_cua_lite(path: Path, _settings: Settings) -> list[Problem]:
    return validate_cua_lite(path)


def _validate_agentnet(path: Path, _settings: Settings) -> list[Problem]:
    return validate_agentnet(path)


def _validate_atif(path: Path, _settings: Settings) -> list[Problem]:
    return validate_atif(path) if path.is_dir() else validate_atif_file(path)


CUA_LITE_FORMAT = ValidatedFormat(
    name="cua_lite", files=(LITE_ROOT,), validate=_validate_cua_lite, decisive=True
)
AGENTNET_FORMAT = ValidatedFormat(
    name="agentnet", files=(AGENTNET_META,), validate=_validate_agentnet, decisive=True
)
ATIF_FORMAT = ValidatedFormat(
    name="atif", files=(ATIF_LIST,), validate=_validate_atif, decisive=True
)
