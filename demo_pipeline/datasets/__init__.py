"""Many trajectories together: splits, the CUDAG build, SFT samples, the index and provenance."""
