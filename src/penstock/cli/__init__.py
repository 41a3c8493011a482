"""The command line: thin commands over the same verbs as everybody's."""
