"""The engine of a client that reads: fetches, positions, budget of bytes."""
