"""Tests of recordings of other tools, each in a small file of its own in that tool's form."""
