"""Golden outputs: the pipeline's outputs for two real recordings, and records of its code."""
