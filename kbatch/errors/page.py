"""Write docs/errors.md from the table and the classes."""

from collections.abc import Iterator
from types import ModuleType

from kbatch.errors import base, client, consuming
from kbatch.errors.base import ROWS, ErrorRow, KafkaError

INTRODUCTION = """\
# Errors

What does this error mean, and what do I do? Find its class or code below. Every error is a
`kbatch.KafkaError`; all classes are in `kbatch.errors`. Besides its text an error has

| attribute | meaning |
|---|---|
| `code` | Kafka's error code, an `ErrorCode`; None if Kafka has none for it. |
| `retriable` | The request may succeed later. A delivery fails with it when time or `retries` are used up. |
| `fatal` | The producer cannot go on: close it and create another (`Producer.recreate()`). |
| `abortable` | The transaction cannot be committed: abort it, and go on with the next. |
| `possibly_persisted` | For a failed delivery: the record may still be in the log. |

`fatal` and `abortable` also depend on the request, above all in
[transactions](transaction_states.md#answers): a delivery that fails in a transaction has an error that is
abortable, or fatal. If an error differs from the table below, the error is right.

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

`python -m kbatch.errors > docs/errors.md` writes this page.
"""

GROUPS_TEXT = """
## Groups

The groups are Kafka's (KIP-1050). `except` with a group catches all of its errors.

| class | is also | meaning, and what to do |
|---|---|---|
"""

CLIENT_TEXT = """
## Errors of the client

| class | is also | meaning, and what to do |
|---|---|---|
"""

CODES_TEXT = """
## Errors by Kafka's code

"can": `retry` the request (`retriable`), `refresh` the metadata first. "abortable" and "fatal": the
attributes, unless the request decides. "persisted": after this answer to a Produce request, `maybe` the
batch is still in the log. A failed delivery's `possibly_persisted` is true if one of its attempts got such an
answer, or none.

| code | name | class | is also | can | abortable | fatal | persisted | meaning, and what to do |
|---:|---|---|---|---|---|---|---|---|
"""


def page() -> str:
    """Return the whole page in Markdown."""
    return "".join(_lines())


def _lines() -> Iterator[str]:
    groups = [kind for kind in _classes(base) if kind is not KafkaError]
    rows = sorted(ROWS.values())
    elsewhere = {KafkaError, *groups, *(row.exception for row in rows)}
    yield INTRODUCTION
    yield GROUPS_TEXT
    yield from (_cells(*_head(kind), kind.doc) for kind in groups)
    yield CLIENT_TEXT
    own = [*_classes(client), *_classes(consuming)]
    yield from (_cells(*_head(kind), kind.doc) for kind in own if kind not in elsewhere)
    yield CODES_TEXT
    for row in rows:
        yield _cells(f"{row.code:d}", row.code.name, *_head(row.exception), *_says(row), row.doc)


def _classes(module: ModuleType) -> list[type[KafkaError]]:
    return [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, KafkaError)]


def _head(kind: type[KafkaError]) -> tuple[str, str]:
    """Return the class and its bases, without KafkaError, which all have."""
    bases = [base.__name__ for base in kind.__bases__ if base is not KafkaError]
    return f"`{kind.__name__}`", ", ".join(f"`{name}`" for name in bases)


def _says(row: ErrorRow) -> tuple[str, ...]:
    """Return the cells for reactions and attributes."""
    can = [word for word, is_so in (("retry", row.retriable), ("refresh", row.refresh_metadata)) if is_so]
    return (
        ", ".join(can),
        "yes" if row.abortable else "",
        "yes" if row.fatal else "",
        "maybe" if row.possibly_persisted else "",
    )


def _cells(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"
