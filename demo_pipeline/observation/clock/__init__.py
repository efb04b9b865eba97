"""Maps the log of a recording to its video: its times (clock) and its positions (canvas)."""
