"""SASL: the mechanisms by which a client proves who it is, without sockets.

`exchange` says what a mechanism is; each other file is one of them, or what it needs. `mechanism_of` makes
the one that a configuration names.
"""

from kbatch.sasl.exchange import NEVER, Exchange, Mechanism
from kbatch.sasl.mechanisms import mechanism_of
from kbatch.sasl.tokens import Token

__all__ = ["NEVER", "Exchange", "Mechanism", "Token", "mechanism_of"]
