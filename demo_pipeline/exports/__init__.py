"""The training exports.

The record format of an export is called its form. Each form, for example `sft`, has its own module.
"""
