"""Store verbs written once for all SQL engines."""
