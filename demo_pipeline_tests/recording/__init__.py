"""Tests of demo_pipeline.recording."""
