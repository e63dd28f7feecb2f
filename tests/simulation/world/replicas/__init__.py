"""What replicated worlds have more: replicas that lag, and nodes that end, sleep and are cut off."""
