"""SQLite: one file, no server, many processes on one machine."""
