"""The worker: claims messages in batches, runs their handlers, settles them in batches."""
