"""Benchmarks a store against a hand-written loop on the same machine in the same run."""
