"""Connections, metadata and questions: the part of a client that knows nothing of records."""
