"""Descriptors, signals, sensors and messages: what needs no records."""
