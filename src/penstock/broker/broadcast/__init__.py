"""Broadcast queues: their subscriptions, and the copies of each message."""
