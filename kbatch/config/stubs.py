"""Write keywords.py, the types of the clients' keywords, from the tables: `python -m kbatch.config.stubs`."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from kbatch.config.keys import ADMIN_KEYS, CONSUMER_KEYS, KEYS
from kbatch.config.names import ALIASES
from kbatch.config.readers import GROUP_KEYS, NOT_FOR_SHARE_GROUPS
from kbatch.config.values import Key

MODULE = Path(__file__).with_name("keywords.py")
_HEAD = '''\
"""Made from the tables by `python -m kbatch.config.stubs`: which keywords clients take, for type checkers.

A function that passes settings on is typed by them: `def connect(**settings: Unpack[ProducerKeywords])`.
None leaves a key at its default. Names of other clients come after kbatch's own. Keys that accept nothing but
their default are missing; a mapping of settings may have them.
"""

from collections.abc import Callable, Mapping
from os import PathLike
from ssl import SSLContext
from typing import Any, Generic, Protocol, TypedDict

from kbatch.config.values import Password
from kbatch.typed import AnyDeserializer, K, V


class TokenProvider(Protocol):
    """Gives tokens, as aiokafka's and kafka-python's providers do."""

    def token(self) -> Any: ...
'''
_SHARED = "ClientKeywords"
# They say which types a client's records have.
_GENERIC = {"key_deserializer": "AnyDeserializer[K]", "value_deserializer": "AnyDeserializer[V]"}
_CLIENTS: Mapping[str, tuple[str, Mapping[str, Key], Collection[str]]] = {
    "ProducerKeywords": ("Producer and AsyncProducer", KEYS, ()),
    "ConsumerKeywords": ("Consumer and AsyncConsumer", CONSUMER_KEYS, ()),
    "ShareConsumerKeywords": ("ShareConsumer and AsyncShareConsumer", CONSUMER_KEYS, NOT_FOR_SHARE_GROUPS),
    "TopicReaderKeywords": ("TopicReader", CONSUMER_KEYS, GROUP_KEYS),
    "AdminKeywords": ("Admin and AsyncAdmin", ADMIN_KEYS, ()),
}


def module() -> str:
    """Return the text of keywords.py."""
    clients = {name: _annotations(keys, missing) for name, (_, keys, missing) in _CLIENTS.items()}
    first, *others = clients.values()
    shared = dict(pair for pair in first.items() if all(pair in other.items() for other in others))
    classes = [_class(_SHARED, "TypedDict", "every client", shared)]
    for name, own in clients.items():
        annotations = {word: text for word, text in own.items() if word not in shared}
        classes.append(_class(name, _SHARED, _CLIENTS[name][0], annotations))
    return "\n\n".join([_HEAD, *("\n".join(lines) + "\n" for lines in classes)])


def _annotations(keys: Mapping[str, Key], missing: Collection[str]) -> dict[str, str]:
    """Return the annotations of a client's keywords, those with names of other clients last."""
    has = {name: key.type.annotation for name, key in keys.items() if not (key.refused or name in missing)}
    others = {
        other: alias.annotation or has[alias.key]
        for other, alias in ALIASES.items()
        if alias.key in has and other not in keys
    }
    words = {name.replace(".", "_"): annotation for name, annotation in (has | others).items()}
    return {word: _GENERIC.get(word, annotation) for word, annotation in words.items()}


def _class(name: str, base: str, clients: str, annotations: Mapping[str, str]) -> Iterator[str]:
    generic = ", Generic[K, V]" if any(word in annotations for word in _GENERIC) else ""
    yield f"class {name}({base}{generic}, total=False):"
    yield f'    """The keywords of {clients}."""'
    yield ""
    for word, annotation in annotations.items():
        yield f"    {word}: {annotation if annotation == 'object' else f'{annotation} | None'}"


if __name__ == "__main__":
    MODULE.write_text(module())
