"""Tests of discovery, and a simulated world with every fault."""
