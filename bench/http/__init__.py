"""The service, measured against a raw echo of the same body."""
