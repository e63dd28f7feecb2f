"""The configuration of a producer: Kafka's keys, types and defaults, and some keys of our own."""

from kbatch.config.keys import KEYS, ClientConfig, ProducerConfig
from kbatch.config.properties import read_properties
from kbatch.config.values import Key, Password

__all__ = ["KEYS", "ClientConfig", "Key", "Password", "ProducerConfig", "read_properties"]
