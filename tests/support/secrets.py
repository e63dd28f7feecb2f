"""A plugin by which no secret shows: it reads what every test prints, logs and raises.

conftest.py registers it. A module that uses a secret calls `register`; from then on a test fails in whose
output, log or errors of kbatch the secret occurs, also if the test expects the error and passes.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Generator, Iterable, Iterator
from typing import Any

import pytest

from kbatch.errors import KafkaError
from tests import ROOT

# Each as it is, and as it looks in a repr.
SECRETS: set[str] = set()
# Shorter ones occur by chance.
MIN_CHARACTERS = 6


def register(*secrets: str) -> None:
    """Watch for these texts from now on. Each must be one that no other text has by chance."""
    if short := [secret for secret in secrets if len(secret) < MIN_CHARACTERS]:
        raise ValueError(f"a secret must have {MIN_CHARACTERS} characters or more, got {short}")
    SECRETS.update(secrets)
    SECRETS.update(repr(secret)[1:-1] for secret in secrets)


def register_pem(pem: bytes) -> None:
    """Watch for the lines of a private key. The last one may be short, and the first ones are of its kind."""
    register(*pem.decode().splitlines()[2:-2])


register("s3cret")  # of unit tests


def shows_a_secret(text: str) -> bool:
    """True if a text shows a secret."""
    return any(secret in text for secret in SECRETS)


def texts_of(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield what shows of an error, of its causes, and of its pickle: where, and the text."""
    seen: set[int] = set()
    queue = [error]
    while queue:
        each = queue.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        name = type(each).__name__
        yield f"the text of a {name}", "\n".join([str(each), repr(each), repr(each.args), repr(vars(each))])
        if isinstance(each, KafkaError):
            yield f"the pickle of a {name}", pickle.dumps(each).decode(errors="replace")
        hidden = None if each.__suppress_context__ else each.__context__
        queue += [other for other in (each.__cause__, hidden) if other is not None]


def report_of(error: BaseException | None) -> str:
    """Return all that a report of the error may show: texts, and the locals of the frames but the tests'."""
    if error is None:
        return ""
    frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), capture_locals=True)
    shown = [str(error), repr(error), repr(error.args), repr(vars(error))]
    for frame in frames:
        if not frame.filename.startswith(str(ROOT / "tests")):
            shown += (frame.locals or {}).values()
    return "\n".join(shown) + report_of(error.__cause__) + report_of(error.__context__)


class Errors:
    """The errors of kbatch that are made during a test."""

    def __init__(self) -> None:
        self.made: list[KafkaError] = []

    def __enter__(self) -> Errors:
        made = self.made

        def collect(self: KafkaError, *args: Any, **keywords: Any) -> None:
            Exception.__init__(self, *args, **keywords)
            made.append(self)

        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(KafkaError, "__init__", collect)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def shown(self) -> Iterator[tuple[str, str]]:
        for error in self.made:
            yield from texts_of(error)


def complaints(texts: Iterable[tuple[str, str]]) -> list[str]:
    """Return where a secret shows, without the secret."""
    all_texts = list(texts)
    # hundreds of secrets are searched for in all texts at once: most tests make many short ones, without any
    if not shows_a_secret("\n".join({text for _, text in all_texts})):
        return []
    return [f"{where} shows a secret" for where, text in all_texts if shows_a_secret(text)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    with Errors() as errors:
        result = yield
    if found := complaints(errors.shown()):
        pytest.fail("; ".join(dict.fromkeys(found)), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    # The last of three reports has what all three have captured.
    if call.when == "teardown" and report.passed and (found := complaints(report.sections)):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: {'; '.join(found)}"
    return report
