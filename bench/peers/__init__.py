"""Other queues on PostgreSQL, each in an environment of its own that is made for the run."""
