"""The ways in that the pages name: their shell lines, and the paths through the UI."""
