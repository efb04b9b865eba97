"""Observation: calibration, the frame and the UI tree before each action, and the target."""
