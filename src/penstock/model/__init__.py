"""Frozen structs shared by every layer: messages, queues, settings, store types."""
