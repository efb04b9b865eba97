"""The clock and the canvas of a recording."""
