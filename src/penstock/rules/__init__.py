"""Pure functions that make decisions, without I/O or a clock.

Rules that route messages are in `broker/routing`.
"""
