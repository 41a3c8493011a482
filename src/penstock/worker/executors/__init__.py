"""Executors: run handlers on the event loop, in threads, processes, batches or shells."""
