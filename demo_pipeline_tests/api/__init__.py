"""Tests of the API for notebooks."""
