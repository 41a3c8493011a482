"""Fetch, run, flush: returning is an ack, raising is a nack; batches in, batches out."""
