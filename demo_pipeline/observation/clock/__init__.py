"""Converts the times (clock) and positions (canvas) of a recording's log to those of its video."""
