"""Breaks the source on purpose, one line at a time, to see that a test notices each."""
