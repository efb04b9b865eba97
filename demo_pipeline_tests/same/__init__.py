"""Hashes of everything that people see of the project; `make same` compares them with a record."""
