"""Many trajectories together: their selection, their splits, the index, quests and SQL views."""
