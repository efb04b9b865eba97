"""Tests of the Dagster layer, mostly in the process of the tests and in temporary folders."""
