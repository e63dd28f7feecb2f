"""docs/transaction_states.md, from the tables of transactions:
`python -m kbatch.core.producer.transaction_page`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbatch.core.producer.outcome import OUTCOMES, Outcome
from kbatch.core.producer.transaction_requests import ACTIONS, Action, Kind
from kbatch.core.producer.transaction_states import CALLS, TRANSITIONS, State
from kbatch.errors import ROWS, ErrorCode

INTRODUCTION = """\
# The states of a transactional producer, and what each answer means

`python -m kbatch.core.producer.transaction_page > docs/transaction_states.md` wrote this page. How
transactions are used is on [that of transactions](transactions.md).

## States

What may follow what, but for `FATAL_ERROR`, which may follow all:

"""

CALLS_TEXT = """
A call is taken in these states. In others it changes nothing, and raises the error that the state is in, or
`IllegalStateError`.

"""

ANSWERS_TEXT = """
## Answers

What comes of an error code, by the request that it answers. Some are abortable: `abort_transaction()` leads
to the next transaction. Some are fatal: only a new producer (`recreate()`) helps. Where an answer has several
codes, the first of these counts that one of them means:

"""

CODES_TEXT = """
Produce is answered for each batch; of those that fail, the transaction can only be aborted. A code that is
not in the table is as `NOT_ENOUGH_REPLICAS` where it is [retriable](errors.md#errors-by-kafkas-code), else as
`UNKNOWN_SERVER_ERROR`.

"""

WORDS = {
    Action.FENCED: "fatal: fenced",
    Action.FATAL: "fatal",
    Action.INIT_AGAIN: "call again",
    Action.BUMP_OR_FATAL: "abort, new epoch",
    Action.GONE: "done, new epoch",
    Action.COMMIT_FAILED: "abort: rejoin",
    Action.ABORT: "abort",
    Action.FIND: "find",
    Action.RETRY: "retry",
    Action.DONE: "done",
}
OUTCOME_WORDS = {
    Outcome.COMPLETE: "done",
    Outcome.RETRY: "retry",
    Outcome.SPLIT: "split",
    Outcome.GAP: "retry or abort",
    Outcome.FAIL: "abort",
    Outcome.FATAL: "fatal",
}
TYPICAL = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_SERVER_ERROR)


def page() -> str:
    """The whole page, in Markdown."""
    return "".join(f"{line}\n" for line in _lines())


def _lines() -> Iterator[str]:
    yield INTRODUCTION + "```mermaid"
    yield from _diagram()
    yield "```" + "\n" + CALLS_TEXT.removesuffix("\n")
    methods = [(f"`{name}()`", _names(states)) for name, states in CALLS.items()]
    yield from _table(["method", "states"], methods)
    yield ANSWERS_TEXT.removesuffix("\n")
    yield from _table(["in the table", "what comes of it"], [(WORDS[each], each.value) for each in Action])
    yield CODES_TEXT.removesuffix("\n")
    rows = [(f"{code:d}", code.name, *_meanings(code)) for code in _codes()]
    yield from _table(["code", "name", *(kind.value for kind in Kind), "Produce"], rows)


def _diagram() -> Iterator[str]:
    """The table of states in Mermaid's notation, without what ends in FATAL_ERROR."""
    yield "stateDiagram-v2"
    yield f"    [*] --> {State.UNINITIALIZED.name}"
    for state, following in TRANSITIONS.items():
        for each in State:
            if each in following and each is not state and each is not State.FATAL_ERROR:
                yield f"    {state.name} --> {each.name}"


def _names(states: frozenset[State]) -> str:
    return ", ".join(f"`{state.name}`" for state in State if state in states)


def _codes() -> list[ErrorCode]:
    """Those that mean something else than others do, and one of each of the others."""
    typical = [_meanings(code) for code in TYPICAL]
    return [code for code in sorted(ROWS) if code in TYPICAL or _meanings(code) not in typical]


def _meanings(code: ErrorCode) -> tuple[str, ...]:
    of_batch = Outcome.FATAL if ROWS[code].fatal else OUTCOMES[code]
    return *(WORDS[ACTIONS[kind][code]] for kind in Kind), OUTCOME_WORDS[of_batch]


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (names, ["---"] * len(names), *rows):
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(page(), end="")
