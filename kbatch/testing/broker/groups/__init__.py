"""Consumer groups: their coordinators, members, assignors and committed offsets."""
