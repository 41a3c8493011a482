"""The dashboard in a browser, and its build."""
