"""The training exports. The record format of each export, its form, has a module of its own."""
