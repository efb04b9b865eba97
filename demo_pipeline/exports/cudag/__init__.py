"""The CUDAG form."""
