"""Compares the lake with the store."""
