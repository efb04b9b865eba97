"""Imports recordings of other tools as uploads or trajectories, with one module per tool."""
