"""Pure functions that decide: no I/O, no clock."""
