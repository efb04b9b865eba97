"""Brings the log and the video of a recording together: in time (clock) and in space (canvas)."""
