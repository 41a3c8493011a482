"""Outgoing webhooks: subscriptions, signing, sending, egress policy."""
