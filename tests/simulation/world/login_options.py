"""The options of worlds whose brokers require a login.

They are drawn from a separate source, so that the other worlds stay unchanged.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TypeVar

from tests.simulation.world.options import Draw, LoginOptions, WorldOptions

LIKELIHOOD = 0.12
USER, PASSWORD = "alice", "open sesame"
SETTINGS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": USER,
    "sasl.password": PASSWORD,
}
AnyOptions = TypeVar("AnyOptions", bound=WorldOptions)


def with_logins(options: AnyOptions) -> AnyOptions:
    """Return the same world, or one whose brokers require a login, mostly one that must be renewed."""
    source = random.Random(f"login {options.seed}")
    if source.random() >= LIKELIHOOD:
        return options
    draw = Draw(source)
    login = LoginOptions(
        lifetime_ms=draw.of(0, 1200, 1500, 3000),
        token_ms=draw.of(0.1, 5.0, 50.0),
        no_token=draw.rate(0.3, 0.5),
        refused=draw.rate(0.3, 0.5),
    )
    return replace(options, login=login, settings=options.settings | SETTINGS)
