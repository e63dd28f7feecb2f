"""Errors that may not show a secret, also not in the frames of their tracebacks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbatch.errors import KafkaError
from tests.support.secrets import report_of


def failing(call: Callable[[], object], kind: type[KafkaError], *secrets: str) -> str:
    """Return the text of the error that the call raises; its report shows no secret."""
    with pytest.raises(kind) as caught:
        call()
    report = report_of(caught.value)
    for secret in secrets:
        assert secret not in report
    return str(caught.value)
