"""The clients that `kbatch bench` compares. To add one, write its class (see clients.py) and a row here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from kbatch.bench import clients
from kbatch.bench.settings import Settings
from kbatch.distribution import pip_install


@dataclass(frozen=True)
class Contestant:
    """A row: `needs` is a module, or a name in one; `share` is its fraction of the records, less for slow
    ones; `note` appears beside its figures. Without a `client` it is no Python program.
    """

    client: Callable[[Settings], clients.Client] | None
    needs: str
    share: float = 1.0
    note: str = ""
    transactional: bool = False


def _of_asyncio(name: str) -> Callable[[Settings], clients.Client]:
    """Import a class of async_clients.py only here: other processes do without its memory."""

    def opened(settings: Settings) -> clients.Client:
        client: clients.Client = getattr(import_module("kbatch.bench.async_clients"), name)(settings)
        return client

    return opened


CONTESTANTS: dict[str, Contestant] = {
    "kbatch": Contestant(clients.Kbatch, "kbatch", 1.0, "send() with an on_delivery", transactional=True),
    "kbatch AsyncProducer": Contestant(
        _of_asyncio("KbatchAsync"), "kbatch.AsyncProducer", 0.5, "awaits send() with an on_delivery"
    ),
    "confluent-kafka": Contestant(
        clients.Confluent,
        "confluent_kafka",
        1.0,
        f"produce() with an on_delivery, poll(0) every {clients.POLL_EVERY_RECORDS} records",
        transactional=True,
    ),
    "aiokafka": Contestant(_of_asyncio("Aiokafka"), "aiokafka", 0.05, "awaits send(), a callback a future"),
    "kafka-python": Contestant(clients.KafkaPython, "kafka", 0.05, "send() with a callback"),
}


def why_missing(contestant: Contestant) -> str | None:
    """Return why a contestant cannot run here, or None if it can."""
    module, _, names = contestant.needs.partition(".")
    if find_spec(module) is None:
        return f"no module {module!r}: {pip_install('bench')}"
    found: object = import_module(module) if names else None
    for each in names.split(".") if names else ():
        found = getattr(found, each, None)
    return f"this {module} has no {names}" if names and found is None else None
