"""Kafka's wire protocol: `messages` has requests and responses, `codec` writes and reads them."""
