"""Behaviour of Dagster that this project relies on; a failure here means: read its changelog."""
