"""Kafka's wire protocol: `messages` are requests and responses, `codec` writes and reads them."""
