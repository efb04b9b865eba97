"""Reads OSWorld's task files, builds their catalog, and finds the task of a demonstration."""
