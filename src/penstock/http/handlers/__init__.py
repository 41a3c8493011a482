"""The handlers of every route, grouped by resource."""
