"""Calibrates a recording, and finds the frame, the UI tree and the target of each action."""
