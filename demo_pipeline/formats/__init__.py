"""The formats of the seeds: models, readers, writers and validators, one module a format."""
