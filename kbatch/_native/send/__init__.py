"""What `send()` and the sender's thread share: queues of batches, in-flight requests, tables."""
