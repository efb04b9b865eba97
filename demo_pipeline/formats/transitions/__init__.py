"""Transitions: the screen before an action, the action, and the screen after it."""
