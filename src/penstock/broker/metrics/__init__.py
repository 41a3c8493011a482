"""Metrics of queues and consumers: what the historian writes and what operators read."""
