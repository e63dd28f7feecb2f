"""Bugs that the worlds must detect; planted_bugs.py looks for them."""
