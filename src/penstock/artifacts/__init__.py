"""Artifacts: files that belong to a message's result."""
