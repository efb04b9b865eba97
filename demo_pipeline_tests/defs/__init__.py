"""Tests of the Dagster layer, in process and over temporary roots."""
