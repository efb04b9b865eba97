"""Turns logged input events into actions, and records what became of every event."""
