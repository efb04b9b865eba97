"""Tests that the checks of every asset notice small damages to its output."""
