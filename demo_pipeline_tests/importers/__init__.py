"""Tests of the importers: each tool has a small recording in its own format."""
