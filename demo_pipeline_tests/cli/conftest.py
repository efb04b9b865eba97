"""Provides faster Dagster instances for commands that run in the process of the tests."""

from demo_pipeline_tests.defs.conftest import quick

__all__ = ["quick"]
