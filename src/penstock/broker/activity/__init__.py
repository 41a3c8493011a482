"""History and audit log as one list."""
