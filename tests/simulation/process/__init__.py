"""Worlds of `process()`: members with workers, a group that moves partitions, and their checks."""
