"""The keys of an Admin are those of Java's."""

from __future__ import annotations

import pytest

from kbatch.config import ADMIN_KEYS, AdminConfig, ProducerConfig
from kbatch.config.keys import ADMIN_OTHER_DEFAULTS
from kbatch.errors import ConfigError


def test_defaults_are_those_of_an_admin() -> None:
    config = AdminConfig(bootstrap_servers="a:9092")
    assert (config.client_id, config.default_api_timeout_ms) == ("kbatch-admin-1", 60_000)
    assert config.given == {"bootstrap.servers"}


def test_a_key_of_another_client_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"linger\.ms"):
        AdminConfig({"bootstrap.servers": "a:9092", "linger.ms": 5})


def test_brokers_or_controllers_are_named() -> None:
    config = AdminConfig(bootstrap_controllers="a:9093, [::1]:9094")
    assert config.bootstrap_addresses == (("a", 9093), ("::1", 9094))
    assert AdminConfig(config.settings()).bootstrap_addresses == config.bootstrap_addresses
    for keys, text in (
        ({}, r"bootstrap\.servers is missing"),
        ({"bootstrap.servers": "a:1", "bootstrap.controllers": "a:2"}, "exclude each other"),
        ({"bootstrap.controllers": "a"}, r"bootstrap\.controllers must be host:port"),
        ({"bootstrap.controllers": []}, r"bootstrap\.controllers must"),
    ):
        with pytest.raises(ConfigError, match=text):
            AdminConfig(keys)
    with pytest.raises(ConfigError, match="admin"):
        ProducerConfig({"bootstrap.servers": "a:1", "bootstrap.controllers": "a:2"})


def test_other_defaults_are_others() -> None:
    for name, other in ADMIN_OTHER_DEFAULTS.items():
        assert ADMIN_KEYS[name].default != other.javas, name
