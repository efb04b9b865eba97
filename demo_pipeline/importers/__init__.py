"""Imports recordings of other tools as uploads or trajectories; each tool has a module."""
