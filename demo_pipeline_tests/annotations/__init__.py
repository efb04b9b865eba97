"""Tests of demo_pipeline/annotations."""
