"""The configuration of clients: Kafka's keys, types and defaults, and some keys of our own."""

from kbatch.config.keys import CONSUMER_KEYS, KEYS, ClientConfig, ConsumerConfig, ProducerConfig
from kbatch.config.properties import read_properties
from kbatch.config.values import Key, Password

__all__ = [
    "CONSUMER_KEYS",
    "KEYS",
    "ClientConfig",
    "ConsumerConfig",
    "Key",
    "Password",
    "ProducerConfig",
    "read_properties",
]
