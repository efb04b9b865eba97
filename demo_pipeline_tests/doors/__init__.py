"""Tests of the commands on the pages, and of the paths through the UI that the pages describe."""
