"""docs/errors.md, from the table and the classes."""

from collections.abc import Iterator
from types import ModuleType

from kbatch.errors import base, client
from kbatch.errors.base import ROWS, ErrorRow, KafkaError

INTRODUCTION = """\
# Errors

`python -m kbatch.errors > docs/errors.md` wrote this page.

Every error is a `kbatch.KafkaError`; all classes are in `kbatch.errors`. Besides its text an error has

| attribute | what it says |
|---|---|
| `code` | Kafka's error code, an `ErrorCode`; None where Kafka has none for it. |
| `retriable` | The same may succeed later. A delivery fails with it when time or `retries` are used up. |
| `fatal` | The producer is of no use any more: close it and make another (`Producer.recreate()`). |
| `abortable` | The transaction cannot be committed: abort it, and go on with the next. |
| `possibly_persisted` | Of a failed delivery: the record may be in the log all the same. |

What is `fatal` or `abortable` depends on the request too, in [transactions](transaction_states.md#answers)
above all: where an error differs from the table below, the error is right.

```python
try:
    delivery.result()
except kbatch.errors.RecordTooLargeError:
    ...                                   # one error
except kbatch.errors.AuthorizationError:
    ...                                   # a group of them
except kbatch.KafkaError as error:
    print(error.code, error.possibly_persisted, error)
```
"""

GROUPS_TEXT = """
## Groups

Kafka's own (KIP-1050). `except` with one of them catches all errors in it.

| class | is also | what it means, and what to do |
|---|---|---|
"""

CLIENT_TEXT = """
## Errors of the client

| class | is also | what it means, and what to do |
|---|---|---|
"""

CODES_TEXT = """
## Errors by Kafka's code

"can": `retry` the same (`retriable`), `refresh` the metadata first. "abortable" and "fatal": the attributes,
where the request does not decide. "persisted" is about one such answer to a Produce request: `maybe` the
batch is in the log all the same. A failed delivery's `possibly_persisted` is true if one of its attempts was
answered so, or not at all.

| code | name | class | is also | can | abortable | fatal | persisted | what it means, and what to do |
|---:|---|---|---|---|---|---|---|---|
"""


def page() -> str:
    """The whole page, in Markdown."""
    return "".join(_lines())


def _lines() -> Iterator[str]:
    groups = [kind for kind in _classes(base) if kind is not KafkaError]
    rows = sorted(ROWS.values())
    elsewhere = {KafkaError, *groups, *(row.exception for row in rows)}
    yield INTRODUCTION
    yield GROUPS_TEXT
    yield from (_cells(*_head(kind), kind.doc) for kind in groups)
    yield CLIENT_TEXT
    yield from (_cells(*_head(kind), kind.doc) for kind in _classes(client) if kind not in elsewhere)
    yield CODES_TEXT
    for row in rows:
        yield _cells(f"{row.code:d}", row.code.name, *_head(row.exception), *_says(row), row.doc)


def _classes(module: ModuleType) -> list[type[KafkaError]]:
    return [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, KafkaError)]


def _head(kind: type[KafkaError]) -> tuple[str, str]:
    """The class, and what it is also; that it is a KafkaError need not be said."""
    bases = [base.__name__ for base in kind.__bases__ if base is not KafkaError]
    return f"`{kind.__name__}`", ", ".join(f"`{name}`" for name in bases)


def _says(row: ErrorRow) -> tuple[str, ...]:
    """What can be done, and what holds."""
    can = [word for word, is_so in (("retry", row.retriable), ("refresh", row.refresh_metadata)) if is_so]
    return (
        ", ".join(can),
        "yes" if row.abortable else "",
        "yes" if row.fatal else "",
        "maybe" if row.possibly_persisted else "",
    )


def _cells(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"
