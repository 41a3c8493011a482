"""Where handlers run: on the loop, in threads, in processes, in batches, as shell commands."""
