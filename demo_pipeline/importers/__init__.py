"""Recordings of other tools, turned into upload folders; one module a tool."""
