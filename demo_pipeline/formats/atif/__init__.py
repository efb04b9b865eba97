"""Trajectories in the Agent Trajectory Interchange Format (ATIF), one file each."""
