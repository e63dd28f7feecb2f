"""Kafka's messages as tables, a family a module; kbatch/protocol/schema.py explains the notation."""

from kbatch.protocol.tables import (
    admin,
    brokers,
    cluster,
    fetch,
    groups,
    internal,
    metadata,
    produce,
    security,
    share,
    telemetry,
    transactions,
)

TABLES = (
    produce.TABLE,
    fetch.TABLE,
    metadata.TABLE,
    transactions.TABLE,
    groups.TABLE,
    share.TABLE,
    admin.TABLE,
    cluster.TABLE,
    brokers.TABLE,
    security.TABLE,
    telemetry.TABLE,
    internal.TABLE,
)
