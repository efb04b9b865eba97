"""Presents finished data to people: a report to send, and single steps as images and HTML."""
