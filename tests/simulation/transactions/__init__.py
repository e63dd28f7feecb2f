"""Worlds of programs that use transactions."""
