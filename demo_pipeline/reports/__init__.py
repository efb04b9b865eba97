"""Presents finished data to people: a static HTML report, and single steps as images and HTML."""
