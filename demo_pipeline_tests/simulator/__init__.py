"""A synthetic recorder: writes recordings of scripted demonstrations with ground truth."""
