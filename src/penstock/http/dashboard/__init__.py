"""The server side of the dashboard: its files, live figures and the stream of changes."""
