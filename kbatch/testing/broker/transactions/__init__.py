"""Transactions: their coordinator, their states and the producer ids."""
