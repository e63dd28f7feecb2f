"""What a registry is asked before records can be given, while those of other partitions are.

A partition whose next records need an unknown schema is set aside for the rest of a poll. The registry is
asked by a worker, about one such partition at a time. If a poll ends first, or is cancelled, the question
stays: a later poll takes the answer, and asks nothing again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from kbatch.errors import KafkaTimeoutError

if TYPE_CHECKING:
    from kbatch.consumer.backlog import AssignedPartition, Backlog
    from kbatch.consumer.typed_records import Outcomes, Submit, TypedRecords, Unknown
    from kbatch.waiting.deadline import Deadline


@final
class SchemaQuestion:
    """The question that a consumer has asked, if any.

    Parameters
    ----------
    backlog : Backlog
    submit : Callable
        Runs a function on another thread.
    notify : Callable
        Makes a poll that waits look again.
    new_deadline : Callable
        Returns when a question that is asked now is given up.
    """

    def __init__(
        self,
        backlog: Backlog,
        submit: Submit,
        notify: Callable[[], object],
        new_deadline: Callable[[], Deadline],
    ) -> None:
        self._backlog = backlog
        self._submit = submit
        self._notify = notify
        self._new_deadline = new_deadline
        self._outcomes: Outcomes | None = None
        self._deadline: Deadline | None = None

    def ask(self, typed: TypedRecords, unknown: Unknown, assigned: AssignedPartition) -> None:
        """Ask for what a partition's next records need, unless another question is open, and serve the other
        partitions.
        """
        if self._outcomes is None:
            self._deadline = self._new_deadline()
            self._outcomes = typed.begin_to_ask(unknown, self._submit, self._notify)
        self._backlog.set_aside(assigned)

    @property
    def is_answered(self) -> bool:
        """True if `conclude` has something to do."""
        return bool(self._outcomes)

    def within(self, deadline: Deadline) -> Deadline:
        """Return when a poll looks at the question at the latest."""
        left = None if self._outcomes is None or self._deadline is None else self._deadline.left
        return deadline if left is None else deadline.within(left)

    def conclude(self) -> None:
        """Serve all partitions again after the answer.

        Raises
        ------
        SchemaRegistryError
            The registry refuses, or cannot be reached.
        KafkaTimeoutError
            It has not answered within default.api.timeout.ms.
        """
        is_late = self._deadline is not None and self._deadline.is_over
        if self._outcomes is None or not (self._outcomes or is_late):
            return
        outcomes, self._outcomes = self._outcomes, None
        self._backlog.bring_back()
        if not outcomes:
            raise KafkaTimeoutError("the schema registry has not answered within default.api.timeout.ms")
        (error,) = outcomes
        if error is not None:
            raise error
