"""Where a secret could show: in representations, texts of errors, and frames of tracebacks."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest

from kbatch.errors import KafkaError
from tests import ROOT


def shows(error: BaseException | None) -> str:
    """Everything that a report of the error can show: texts, attributes, and locals of frames but ours."""
    if error is None:
        return ""
    frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), capture_locals=True)
    shown = [str(error), repr(error), repr(error.args), repr(vars(error))]
    for frame in frames:
        if not frame.filename.startswith(str(ROOT / "tests")):
            shown += (frame.locals or {}).values()
    return "\n".join(shown) + shows(error.__cause__) + shows(error.__context__)


def failing(call: Callable[[], object], kind: type[KafkaError], *secrets: str) -> str:
    """The text of the error that the call raises, in whose report no secret shows."""
    with pytest.raises(kind) as caught:
        call()
    report = shows(caught.value)
    for secret in secrets:
        assert secret not in report
    return str(caught.value)
