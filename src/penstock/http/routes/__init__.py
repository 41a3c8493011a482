"""Routes that need not be quick, by FastAPI."""
