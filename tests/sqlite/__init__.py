"""What is special to the SQLite store: its files, its locks, its writer and its plans."""
