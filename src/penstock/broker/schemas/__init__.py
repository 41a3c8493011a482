"""The schema registry, and the process that compiles and compares schemas."""
