"""The store: immutable versions of outputs in a folder or a bucket, and the uploads."""
