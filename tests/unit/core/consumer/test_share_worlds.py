"""Worlds of share groups: no record is lost, or accepted by two members, whatever fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kbatch.core.consumer.share_fetcher import Acquired, ShareFetcher
from tests.support.effort import few
from tests.support.share_worlds import play

SEEDS = range(40)


@pytest.mark.parametrize("seed", few(SEEDS, 5))
def test_each_record_is_done_by_one_member(seed: int) -> None:
    play(seed)


def refusals_count_as_success(finish: Any) -> Any:
    return lambda self, acks, error: finish(self, acks, None)


def memory_is_kept(release: Any) -> Any:
    return lambda self: False


def lost_answers_leave_calls_open(answer_of: Any) -> Any:
    def read(self: Any, attempt: Any, response: Any) -> Any:
        if response.message is None:
            attempt.acks = []
        return answer_of(self, attempt, response)

    return read


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "plant"),
    [
        (ShareFetcher, "_finish", refusals_count_as_success),
        (Acquired, "release", memory_is_kept),
        (ShareFetcher, "_answer_of", lost_answers_leave_calls_open),
    ],
)
def test_planted_bugs_are_caught(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, plant: Callable[[Any], Any]
) -> None:
    monkeypatch.setattr(owner, name, plant(getattr(owner, name)))
    with pytest.raises(AssertionError, match="seed"):
        for seed in SEEDS:
            play(seed)
