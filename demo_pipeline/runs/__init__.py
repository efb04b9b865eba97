"""Decides which outputs to build, and builds them: graph, workers, quarantine, discovery."""
