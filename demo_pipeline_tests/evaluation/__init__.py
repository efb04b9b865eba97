"""Tests of scoring: rules, predictions, tables, requests and the endpoint."""
