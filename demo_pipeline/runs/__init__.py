"""Decides which outputs to build, runs the builds, and quarantines rejected demonstrations."""
