"""Requests of administrators: messages and what their answers say, by subject."""
