"""The SQLite store: one file, no server, many processes on one machine."""
