"""Kafka's assignors as a judge: tests/java/Assignors.java in a separate process, called over a pipe."""

from __future__ import annotations

import json
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Self

from tests.oracle.java_programs import Program

JAVA_OPTIONS = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=off",)


class JavaAssignorError(Exception):
    """An exception of an assignor of Java's."""


class JavaAssignors:
    """Kafka's assignors, by the names of their classes. A context manager; not for several threads."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            Program("Assignors", java_options=JAVA_OPTIONS).command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def assign(
        self,
        java_class: str,
        topics: Mapping[str, Sequence[Sequence[str]]],
        members: Mapping[str, tuple[bytes, str | None]],
    ) -> dict[str, bytes]:
        """Return the bytes of each member's assignment.

        `topics` are the racks of the replicas of each partition; `members` are the bytes of the
        subscription, and the instance id, by member id. Raises JavaAssignorError.
        """
        answer = self._ask(
            {
                "class": java_class,
                "topics": topics,
                "members": [
                    {"id": member_id, "metadata": b64encode(metadata).decode(), "instance": instance_id}
                    for member_id, (metadata, instance_id) in members.items()
                ],
            }
        )
        return {member: b64decode(data) for member, data in answer["assignment"].items()}

    def subscription(
        self,
        java_class: str,
        topics: Sequence[str],
        *,
        owned: Sequence[tuple[str, int]] = (),
        last: Sequence[tuple[str, int]] | None = None,
        generation: int = -1,
        rack: str | None = None,
    ) -> bytes:
        """Return the bytes of a subscription; `last` is the member's last assignment by this assignor."""
        request: dict[str, Any] = {"class": java_class, "topics": topics, "owned": owned}
        request |= {"generation": generation, "rack": rack} | ({} if last is None else {"last": last})
        return b64decode(self._ask(request)["subscription"])

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        answer: dict[str, Any] = json.loads(stdout.readline())
        if "error" in answer:
            raise JavaAssignorError(answer["error"])
        return answer
