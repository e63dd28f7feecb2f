"""A producer's batches: their memory, their state, and what became of their records."""
