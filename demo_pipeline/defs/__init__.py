"""The Dagster layer: when stages run, and for which demonstration."""
