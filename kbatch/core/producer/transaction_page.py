"""docs/transaction_states.md, from the tables of transactions:
`python -m kbatch.core.producer.transaction_page`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbatch.core.producer.outcomes import BATCH_OUTCOMES, ERROR_RESPONSES, ErrorOutcome, ErrorResponse, Kind
from kbatch.core.producer.transaction_states import CALLS, TRANSITIONS, TransactionEvent, TransactionState
from kbatch.errors import ROWS, ErrorCode

INTRODUCTION = """\
# The states of a transactional producer, and what each answer means

`python -m kbatch.core.producer.transaction_page > docs/transaction_states.md` wrote this page.
[Transactions](transactions.md) explains how to use transactions.

## States

The states and the events that lead from one to the next. `FATAL_ERROR` can follow every state:

"""

CALLS_TEXT = """
Each method is allowed in these states. In others it changes nothing, and raises the producer's error or
`IllegalStateError`.

"""

ANSWERS_TEXT = """
## Answers

The effect of an error code depends on the request that it answers. After an abortable error,
`abort_transaction()` leads to the next transaction. After a fatal one, only a new producer (`recreate()`)
helps. If an answer has several codes, the first of these effects counts:

"""

CODES_TEXT = """
The answer to Produce has a code for each batch; after a failed batch the transaction can only be aborted. A
code that is not in the table has the effect of `NOT_ENOUGH_REPLICAS` if it is
[retriable](errors.md#errors-by-kafkas-code), and otherwise of `UNKNOWN_SERVER_ERROR`.

"""

WORDS = {
    ErrorResponse.FENCED: "fatal: fenced",
    ErrorResponse.FATAL: "fatal",
    ErrorResponse.INIT_AGAIN: "call again",
    ErrorResponse.BUMP_OR_FATAL: "abort, new epoch",
    ErrorResponse.GONE: "done, new epoch",
    ErrorResponse.COMMIT_FAILED: "abort: rejoin",
    ErrorResponse.ABORT: "abort",
    ErrorResponse.FIND: "find",
    ErrorResponse.RETRY: "retry",
    ErrorResponse.DONE: "done",
}
OUTCOME_WORDS = {
    ErrorOutcome.COMPLETE: "done",
    ErrorOutcome.RETRY: "retry",
    ErrorOutcome.SPLIT: "split",
    ErrorOutcome.GAP: "retry or abort",
    ErrorOutcome.FAIL: "abort",
    ErrorOutcome.FATAL: "fatal",
}
TYPICAL = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_SERVER_ERROR)


def page() -> str:
    """Return the whole page, in Markdown."""
    return "".join(f"{line}\n" for line in _lines())


def _lines() -> Iterator[str]:
    yield INTRODUCTION + "```mermaid"
    yield from _diagram()
    yield "```" + "\n" + CALLS_TEXT.removesuffix("\n")
    methods = [(f"`{call.value}()`", _names_of_states(call)) for call in CALLS]
    yield from _table(["method", "states"], methods)
    yield ANSWERS_TEXT.removesuffix("\n")
    yield from _table(["in the table", "effect"], [(WORDS[each], each.value) for each in ErrorResponse])
    yield CODES_TEXT.removesuffix("\n")
    rows = [(f"{code:d}", code.name, *_meanings(code)) for code in _codes()]
    yield from _table(["code", "name", *(kind.value for kind in Kind), "Produce"], rows)


def _diagram() -> Iterator[str]:
    """Yield the changes of state in Mermaid's notation."""
    yield "stateDiagram-v2"
    yield f"    [*] --> {TransactionState.UNINITIALIZED.name}"
    for state, row in TRANSITIONS.items():
        for event, following in row.items():
            if following is not state:
                yield f"    {state.name} --> {following.name}: {event.value}{'()' * (event in CALLS)}"


def _names_of_states(call: TransactionEvent) -> str:
    return ", ".join(f"`{state.name}`" for state, row in TRANSITIONS.items() if call in row)


def _codes() -> list[ErrorCode]:
    """Return the codes with effects of their own, and one typical code for each of the other effects."""
    typical = [_meanings(code) for code in TYPICAL]
    return [code for code in sorted(ROWS) if code in TYPICAL or _meanings(code) not in typical]


def _meanings(code: ErrorCode) -> tuple[str, ...]:
    of_batch = ErrorOutcome.FATAL if ROWS[code].fatal else BATCH_OUTCOMES[code]
    return *(WORDS[ERROR_RESPONSES[kind][code]] for kind in Kind), OUTCOME_WORDS[of_batch]


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (names, ["---"] * len(names), *rows):
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(page(), end="")
