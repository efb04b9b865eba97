"""The Dagster layer: when, and for which demonstration. What is true, the other packages decide."""
