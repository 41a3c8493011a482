"""The commands, one module per command group."""
