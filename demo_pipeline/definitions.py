"""The Dagster code location: the definitions for the settings of this environment."""

from demo_pipeline.defs.code_location import build_defs
from demo_pipeline.settings import Settings

defs = build_defs(Settings())
