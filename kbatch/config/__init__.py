"""The configuration of clients: Kafka's keys, types and defaults, and some keys of our own."""

from kbatch.config.keys import (
    ADMIN_KEYS,
    CONSUMER_KEYS,
    KEYS,
    AdminConfig,
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
)
from kbatch.config.properties import read_properties
from kbatch.config.values import Key, Password

__all__ = [
    "ADMIN_KEYS",
    "CONSUMER_KEYS",
    "KEYS",
    "AdminConfig",
    "ClientConfig",
    "ConsumerConfig",
    "Key",
    "Password",
    "ProducerConfig",
    "read_properties",
]
