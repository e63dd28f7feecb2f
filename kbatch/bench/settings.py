"""Translate the contestants' common settings from Kafka's names to each client's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kbatch.errors import ConfigError

if TYPE_CHECKING:
    from kbatch.config import ClientConfig

Settings = Mapping[str, Any]
SECURITY = ("ssl.", "sasl.", "enable.sasl.", "https.")
# What all clients have keys for.
WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

# Only bytes bound its queue, like buffer.memory; keys go to the partitions of Java's client.
LIBRDKAFKA: dict[str, Any] = {
    "queue.buffering.max.messages": 10_000_000,
    "partitioner": "murmur2_random",
    "socket.nagle.disable": True,
    "log_level": 2,
}


def listed(settings: Mapping[str, object]) -> str:
    """Return the settings as key=value, in Kafka's notation."""
    return ", ".join(f"{name}={json.dumps(value).strip(chr(34))}" for name, value in settings.items())


def is_security(name: str) -> bool:
    """True for the keys of TLS and SASL."""
    return name.startswith(SECURITY) or name == "security.protocol"


def _access(settings: Settings) -> tuple[dict[str, Any], ClientConfig | None]:
    """Return the settings without those of TLS and SASL, and these as kbatch reads them, if there are any."""
    rest = {name: value for name, value in settings.items() if not is_security(name)}
    if len(rest) == len(settings):
        return rest, None
    from kbatch.config import ClientConfig  # whose memory only a client that needs it has

    secured = {name: value for name, value in settings.items() if is_security(name)}
    return rest, ClientConfig({**secured, "bootstrap.servers": settings["bootstrap.servers"]})


def access_for_librdkafka(settings: Settings) -> dict[str, Any]:
    """Return the settings with the keys of TLS and SASL under librdkafka's names.

    Raises
    ------
    ConfigError
        For a trust store that is not PEM, and a mechanism other than PLAIN and SCRAM.
    """
    rest, config = _access(settings)
    if config is None:
        return rest
    _check_translatable(config)
    if config.ssl_truststore_type != "PEM":
        raise ConfigError(
            "ssl.truststore.type must be PEM for librdkafka, got "
            f"{config.ssl_truststore_type}; convert it with `openssl pkcs12 -in STORE -nokeys`"
        )
    is_pem = config.ssl_keystore_type == "PEM"
    own = {
        "ssl.certificate.location" if is_pem else "ssl.keystore.location": config.ssl_keystore_location,
        "ssl.key.location": (config.ssl_key_location or config.ssl_keystore_location) if is_pem else None,
        "ssl.keystore.password": config.ssl_keystore_password,
        "ssl.key.password": config.ssl_key_password,
        "ssl.certificate.pem": config.ssl_keystore_certificate_chain,
        "ssl.key.pem": config.ssl_keystore_key,
    }
    theirs = {
        "security.protocol": config.security_protocol,
        "ssl.ca.location": config.ssl_truststore_location,
        "ssl.ca.pem": config.ssl_truststore_certificates,
        "ssl.crl.location": config.ssl_crl_location,
        "ssl.endpoint.identification.algorithm": config.ssl_endpoint_identification_algorithm or "none",
        **own,
    }
    if config.security_protocol.startswith("SASL"):
        theirs |= {
            "sasl.mechanism": config.sasl_mechanism,
            "sasl.username": config.sasl_username,
            "sasl.password": config.sasl_password,
        }
    return rest | {name: _text(value) for name, value in theirs.items() if value is not None}


def _access_for_python(settings: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings without those of TLS and SASL, and these as kafka-python and aiokafka have them.

    Raises
    ------
    ConfigError
        For a mechanism other than PLAIN and SCRAM.
    """
    rest, config = _access(settings)
    if config is None:
        return rest, {}
    _check_translatable(config)
    theirs: dict[str, Any] = {"security_protocol": config.security_protocol}
    if config.security_protocol in ("SSL", "SASL_SSL"):
        from kbatch.network.tls_context import context_of

        theirs["ssl_context"] = context_of(config)
    if config.security_protocol.startswith("SASL"):
        theirs["sasl_mechanism"] = config.sasl_mechanism
        theirs["sasl_plain_username"] = config.sasl_username
        theirs["sasl_plain_password"] = _text(config.sasl_password)
    return rest, theirs


def _check_translatable(config: ClientConfig) -> None:
    if config.security_protocol.startswith("SASL") and config.sasl_mechanism not in WITH_PASSWORD:
        raise ConfigError(
            f"sasl.mechanism must be {', '.join(WITH_PASSWORD)} to compare clients, got "
            f"{config.sasl_mechanism}; the others are configured too differently"
        )


def _text(value: Any) -> Any:
    return getattr(value, "value", value)  # of a Password


def for_librdkafka(settings: Settings) -> dict[str, Any]:
    theirs = access_for_librdkafka(settings)
    theirs["queue.buffering.max.kbytes"] = theirs.pop("buffer.memory") // 1024
    theirs["message.max.bytes"] = theirs.pop("max.request.size")
    theirs["socket.send.buffer.bytes"] = max(theirs.pop("send.buffer.bytes"), 0)
    return theirs | LIBRDKAFKA


def for_kafka_python(settings: Settings) -> dict[str, Any]:
    from kafka import KafkaProducer

    settings, access = _access_for_python(settings)
    theirs = {name.replace(".", "_"): value for name, value in settings.items()} | access
    if theirs["compression_type"] == "none":
        theirs["compression_type"] = None
    if "buffer_memory" not in KafkaProducer.DEFAULT_CONFIG:  # since 3.0 nothing bounds its memory
        del theirs["buffer_memory"]
    if theirs["send_buffer_bytes"] < 0:
        theirs["send_buffer_bytes"] = None
    return theirs


def for_aiokafka(settings: Settings) -> dict[str, Any]:
    """Translate the settings; aiokafka has neither buffer.memory nor the others that are missing here."""
    settings, access = _access_for_python(settings)
    compression = settings["compression.type"]
    theirs = {
        "acks": settings["acks"],
        "enable_idempotence": settings["enable.idempotence"],
        "compression_type": None if compression == "none" else compression,
        "linger_ms": settings["linger.ms"],
        "max_batch_size": settings["batch.size"],
        "max_request_size": settings["max.request.size"],
    }
    theirs |= {
        name.replace(".", "_"): settings[name]
        for name in ("bootstrap.servers", "transactional.id")
        if name in settings
    }
    return theirs | access
