"""Prometheus metrics and queue statistics."""
