"""The HTML report and its data."""
