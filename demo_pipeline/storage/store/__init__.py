"""Immutable versions behind one pointer, in a folder or a bucket."""
