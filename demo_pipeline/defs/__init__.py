"""The Dagster layer: when stages run, and for which demonstration."""

from demo_pipeline.files.processes import save_memory

save_memory()  # before anything of this package imports Arrow
