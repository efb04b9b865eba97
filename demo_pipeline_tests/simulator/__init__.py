"""Recordings made to measure: scripted hands on a drawn desktop, with the truth beside them."""
