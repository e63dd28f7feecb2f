"""`process()`: how records get to workers, and their outcomes back."""
