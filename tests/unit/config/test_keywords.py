"""The types of keywords: what they say is what clients take."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from kbatch import ConfigError, ShareConsumer, TopicReader
from kbatch.config import AdminConfig, ConsumerConfig, Password, ProducerConfig, keywords, stubs, values
from kbatch.config.values import ValueType

TYPES = {name: each for name, each in vars(values).items() if isinstance(each, ValueType)}
CLIENTS: dict[str, Any] = {
    "ProducerKeywords": ProducerConfig,
    "ConsumerKeywords": ConsumerConfig,
    "ShareConsumerKeywords": ShareConsumer,
    "TopicReaderKeywords": TopicReader,
    "AdminKeywords": AdminConfig,
}
NOT_ITS_KEY = ("configuration key of a", "a key of kbatch", "not for share groups", "not be set for a reader")
TEXTS = {
    "boolean": "true",
    "short": "1",
    "int": "1",
    "long": "1",
    "double": "0.5",
    "map": "a=b",
    "class": "a:b",
}


class Provider:
    def token(self) -> str:
        return "token"


def examples(annotation: str, text: str) -> list[Any]:
    """Return a value of each type in the annotation of a ValueType."""
    made = {
        "bool": True,
        "int": 1,
        "float": 0.5,
        "str": text,
        "PathLike[str]": Path("x"),
        "Password": Password("x"),
        "list[str]": ["x"],
        "tuple[str, ...]": ("x", "y"),
        "list[Any]": [object()],
        "tuple[Any, ...]": (object(),),
        "object": object(),
        "Mapping[str, str]": {"a": "b"},
        "Callable[..., Any]": lambda argument: "token",
        "TokenProvider": Provider(),
        "SSLContext": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        "Callable[[], SSLContext]": lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    }
    return [made[each] for each in annotation.split(" | ")]


def test_the_module_is_what_the_tables_make() -> None:
    assert stubs.MODULE.read_text() == stubs.module(), "run `python -m kbatch.config.stubs`"


@pytest.mark.parametrize("name", TYPES)
def test_every_type_of_an_annotation_is_accepted(name: str) -> None:
    kind = TYPES[name]
    text = "all" if name == "ACKS" else TEXTS.get(kind.name, "x")
    for example in examples(kind.annotation, text):
        kind.parse(example)


def refusal(client: Any, word: str, value: object) -> str:
    """Return why a client is not made with a keyword, if it is not."""
    others = {} if word == "bootstrap_servers" else {"bootstrap_servers": "localhost:9092"}
    if client is ShareConsumer and word != "group_id":
        others["group_id"] = "g"
    try:
        made = client(**others, **{word: value})
    except ConfigError as error:
        return str(error)
    if isinstance(made, ShareConsumer | TopicReader):
        made.close()
    return ""


@pytest.mark.parametrize("name", CLIENTS)
def test_every_keyword_is_a_key_of_its_client(name: str) -> None:
    """Whatever is said of a value, the key is known."""
    for word in get_type_hints(getattr(keywords, name)):
        said = refusal(CLIENTS[name], word, Provider)
        assert not any(each in said for each in NOT_ITS_KEY), said


@pytest.mark.parametrize("name", CLIENTS)
def test_a_key_without_a_keyword_is_refused(name: str) -> None:
    hints = {word: hint for each in CLIENTS for word, hint in get_type_hints(getattr(keywords, each)).items()}
    for word in hints.keys() - get_type_hints(getattr(keywords, name)):
        value = "classic" if word == "group_protocol" else "true" if hints[word] == bool | str | None else "1"
        said = refusal(CLIENTS[name], word, value)
        assert said, word
