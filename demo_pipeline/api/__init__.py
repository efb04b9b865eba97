"""The API for notebooks: a store as pandas DataFrames, trajectories as arrays and models."""
