"""The training exports: one module a form."""
