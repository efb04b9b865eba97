"""Tests of what a recording holds."""
