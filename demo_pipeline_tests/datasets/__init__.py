"""Tests of the datasets: splits, records, builds and indexes."""
