"""Benchmarks of other queues, each in its own temporary environment."""
