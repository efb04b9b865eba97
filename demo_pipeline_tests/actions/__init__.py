"""Tests of demo_pipeline.actions."""
