"""Draws the pictures of the documentation from current outputs; run by `make pictures`."""
