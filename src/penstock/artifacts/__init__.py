"""Files that travel with a result."""
