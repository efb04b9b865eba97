"""Faults that the suite catches: one line of a rule changed each; `make planted` plants them."""
