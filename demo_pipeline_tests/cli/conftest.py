"""Instances on disk that cost less, for the commands that run in this process."""

from demo_pipeline_tests.defs.conftest import quick

__all__ = ["quick"]
