"""Trajectories: steps of demonstrations in the OSWorld-Desktopd format, with provenance."""
