"""The code location: definitions for the settings of this environment."""

from demo_pipeline.defs.build import build_defs
from demo_pipeline.settings import Settings

defs = build_defs(Settings())
