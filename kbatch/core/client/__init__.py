"""Connections, metadata and requests about groups: the part of a client that knows nothing of records."""
