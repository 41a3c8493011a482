"""Extracts the history of a store into the lake."""
