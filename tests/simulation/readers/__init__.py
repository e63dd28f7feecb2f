"""Worlds of a consumer group, and of those who write what it reads."""
