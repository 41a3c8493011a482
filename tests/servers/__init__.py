"""Servers of their own for tests, storms and benchmarks."""
