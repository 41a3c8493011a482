"""What only the Redis store has to promise."""
