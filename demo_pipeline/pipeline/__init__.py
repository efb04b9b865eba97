"""Stages, the runner that builds only what is stale, quarantine, validation of any path."""
