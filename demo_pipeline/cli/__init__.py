"""The console script demo-pipeline, one module a command group."""
