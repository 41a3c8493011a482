"""Installations: the bare package, and the lowest versions it allows."""
