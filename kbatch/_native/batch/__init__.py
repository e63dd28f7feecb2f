"""A producer's batches: their memory, their state, and the outcome of their records."""
