"""Live events: the hub, the tail of history, server-sent event streams."""
