"""Mutation tests: `make planted` changes a line of the package, and a test must fail."""
