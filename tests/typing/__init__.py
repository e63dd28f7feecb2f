"""Programs that only a type checker reads."""
