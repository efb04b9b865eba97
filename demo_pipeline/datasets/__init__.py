"""Combines trajectories into datasets: selection, splits, the index, quests and SQL views."""
