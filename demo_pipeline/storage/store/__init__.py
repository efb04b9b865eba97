"""The store: immutable versions of outputs and a pointer to the published version."""
