"""A Kafka broker in this process, to develop and test against.

`Broker` speaks Kafka's own protocol on loopback, so that any client can talk to it, and keeps the server's
half of idempotence, transactions and consumer groups as Kafka 4.3 does. It is not for production. The pytest
fixture `kafka_broker` comes with the package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbatch.testing.broker.broker import Broker
    from kbatch.testing.broker.core import ReceivedRequest
    from kbatch.testing.broker.pushed_metrics import PushedMetrics
    from kbatch.testing.broker.security.acls import Acls
    from kbatch.testing.broker.security.authorizer import AclBinding
    from kbatch.testing.broker.security.certificates import TlsFiles
    from kbatch.testing.broker.security.listeners import Listener

__all__ = ["AclBinding", "Acls", "Broker", "Listener", "PushedMetrics", "ReceivedRequest", "TlsFiles"]

_MODULES = {
    "AclBinding": "broker.security.authorizer",
    "Acls": "broker.security.acls",
    "Broker": "broker.broker",
    "Listener": "broker.security.listeners",
    "PushedMetrics": "broker.pushed_metrics",
    "ReceivedRequest": "broker.core",
    "TlsFiles": "broker.security.certificates",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: only certificates need the package cryptography."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
