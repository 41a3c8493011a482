"""Waits: steps, signals, human steps and workflows."""
