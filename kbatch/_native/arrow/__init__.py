"""Arrow columns in, record batches out, and back."""
