"""Recorded demonstrations of people using computers, made into training data."""

__version__ = "0.1.0"  # the only place: pyproject.toml reads it from here
