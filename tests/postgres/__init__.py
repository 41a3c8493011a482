"""What is special to the PostgreSQL store: its plans, its errors, its wake-ups, its locks."""
