"""Write docs/configuration.md from the tables."""

from collections.abc import Iterator, Mapping

from kbatch.config.keys import (
    ADMIN_KEYS,
    ADMIN_OTHER_DEFAULTS,
    CONSUMER_KEYS,
    CONSUMER_OTHER_DEFAULTS,
    KEYS,
    OTHER_DEFAULTS,
    OtherDefault,
)
from kbatch.config.names import ALIASES, FOREIGN
from kbatch.config.values import REQUIRED, Importance, Key

INTRODUCTION = """\
# Configuration

Which keys does a producer accept? All keys of Kafka's Java producer 4.3 with their types and defaults, except
[some defaults](#defaults-that-are-not-those-of-java) and [some keys](#keys-of-kafka-that-are-refused). A
reader and an Admin have the same keys for connections, security and metrics, and their own:
[readers](#keys-of-readers), [Admin](#keys-of-an-admin).

Pass keys as Kafka writes them, in a mapping, or as keywords with underscores for dots:
`Producer({"bootstrap.servers": "localhost:9092"})` is `Producer(bootstrap_servers="localhost:9092")`. Values
may be strings, as in a properties file. None leaves a key at its default. Unknown keys, invalid values,
duplicates and contradictions raise `ConfigError`. `kbatch.config.read_properties(path)` reads a `.properties`
file as Kafka's tools do. [Security](security.md) has recipes for logins.

Type checkers know the keywords of each client, other clients' names included. A function that passes settings
on is checked by `**settings: Unpack[ProducerKeywords]`, from `kbatch.config.keywords`; it also has the
`ConsumerKeywords`, `ShareConsumerKeywords`, `TopicReaderKeywords` and `AdminKeywords`. Settings of which only
the run knows the keys go into the mapping.

`python -m kbatch.config > docs/configuration.md` writes this page.
"""

OTHER_DEFAULTS_TEXT = """
## Defaults that are not those of Java

| key | Java's | here | why |
|---|---|---|---|
"""

ALIASES_TEXT = """
## Names of other clients

| name | kbatch's key |
|---|---|
"""

REFUSED_TEXT = """
## Keys of Kafka that are refused

Their defaults are accepted, so that you can pass a complete configuration of a Java producer.

| key | accepted | why other values are refused |
|---|---|---|
"""

READERS_TEXT = """
## Keys of readers

These keys of Kafka's Java consumer 4.3 are missing in a producer, or have another default there.

| key | type | default | values | what it does |
|---|---|---|---|---|
"""

READERS_DEFAULTS_TEXT = """
### Defaults of readers that are not those of Java

| key | Java's | here | why |
|---|---|---|---|
"""

READERS_REFUSED_TEXT = """
### Keys of Kafka's consumer that are refused

| key | accepted | why other values are refused |
|---|---|---|
"""

ADMINS_TEXT = """
## Keys of an Admin

These keys of Kafka's Java Admin 4.3 are missing in a producer, or have another default there.

| key | type | default | values | what it does |
|---|---|---|---|---|
"""

ADMINS_DEFAULTS_TEXT = """
### Defaults of an Admin that are not those of Java

| key | Java's | here | why |
|---|---|---|---|
"""

FOREIGN_TEXT = """
## Keys of other clients that are refused

| key | use instead | accepted anyway |
|---|---|---|
"""


def page() -> str:
    """Return the whole page in Markdown."""
    return "".join(_lines())


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    for importance in Importance:
        rows = {name: row for name, row in sorted(KEYS.items()) if row.importance is importance}
        yield f"\n## Importance: {importance}\n\n| key | type | default | values | what it does |\n"
        yield "|---|---|---|---|---|\n"
        yield from (_supported(name, row) for name, row in rows.items() if row.refused is None)
    yield OTHER_DEFAULTS_TEXT
    yield from _other_defaults(OTHER_DEFAULTS, KEYS)
    yield ALIASES_TEXT
    yield from (_cells(f"`{name}`", f"`{alias.key}`") for name, alias in sorted(ALIASES.items()))
    yield REFUSED_TEXT
    yield from _refused(KEYS)
    yield from _of_readers()
    yield from _of_admins()
    yield FOREIGN_TEXT
    for name, foreign in sorted(FOREIGN.items()):
        yield _cells(f"`{name}`", foreign.reason, ", ".join(f"`{value}`" for value in foreign.harmless))


def _of_readers() -> Iterator[str]:
    own = {name: row for name, row in sorted(CONSUMER_KEYS.items()) if row != KEYS.get(name)}
    yield READERS_TEXT
    yield from (_supported(name, row) for name, row in own.items() if row.refused is None)
    yield READERS_DEFAULTS_TEXT
    yield from _other_defaults(CONSUMER_OTHER_DEFAULTS, CONSUMER_KEYS)
    yield READERS_REFUSED_TEXT
    yield from _refused(own)


def _of_admins() -> Iterator[str]:
    own = {name: row for name, row in sorted(ADMIN_KEYS.items()) if row != KEYS.get(name)}
    yield ADMINS_TEXT
    yield from (_supported(name, row) for name, row in own.items())
    yield ADMINS_DEFAULTS_TEXT
    yield from _other_defaults(ADMIN_OTHER_DEFAULTS, ADMIN_KEYS)


def _other_defaults(others: Mapping[str, OtherDefault], keys: Mapping[str, Key]) -> Iterator[str]:
    for name, other in others.items():
        javas = "required" if other.javas is None else _quoted(other.javas)
        yield _cells(f"`{name}`", javas, _default(keys[name]) or "none", other.reason)


def _refused(keys: Mapping[str, Key]) -> Iterator[str]:
    refused = ((name, row) for name, row in sorted(keys.items()) if row.refused is not None)
    return (_cells(f"`{name}`", _default(row), row.refused or "") for name, row in refused)


def _supported(name: str, row: Key) -> str:
    doc = row.doc if row.origin == "Kafka" else f"{row.doc} ({row.origin}'s key)"
    return _cells(f"`{name}`", row.type.name, _default(row), row.check.text, doc)


def _default(row: Key) -> str:
    if row.default is REQUIRED:
        return "required"
    if row.default in (None, ""):
        return ""
    return _quoted(row.default)


def _quoted(value: object) -> str:
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _cells(*cells: str) -> str:
    row = " | ".join(cell.replace("|", r"\|") for cell in cells)
    return f"| {row} |\n"
