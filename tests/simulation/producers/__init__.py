"""Worlds of one producer, its application and its tables."""
