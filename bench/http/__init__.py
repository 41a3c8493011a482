"""Benchmarks the HTTP service against a raw echo of the same body."""
