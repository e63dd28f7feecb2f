"""Descriptors, signals, sensors and messages: code without records."""
