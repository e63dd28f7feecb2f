"""Arrow columns to record batches, and back."""
