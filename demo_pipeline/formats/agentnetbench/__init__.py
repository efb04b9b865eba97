"""The tasks of AgentNetBench: true actions with their targets, one file per task."""
