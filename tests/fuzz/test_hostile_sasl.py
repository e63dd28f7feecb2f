"""Hostile SASL servers: a login succeeds rightly or fails with a clear error.

`make soak` runs two hundred times as many. A block that fails is replayed with
`python -m tests.fuzz.soak --campaign "hostile sasl" --block K`.
"""

from __future__ import annotations

from tests.fuzz import campaign, hostile_sasl

CASES = 5_000


def test_a_login_succeeds_rightly_or_fails_clearly() -> None:
    tally = campaign.run_block_apart("tests.fuzz.hostile_sasl", 0, CASES)
    assert sum(tally.outcomes.values()) == CASES
    # valid and broken messages must both be there
    assert min(tally.outcomes["accepted"], tally.outcomes["refused"]) > CASES // 50, tally.outcomes


def test_a_replayed_block_is_the_same() -> None:
    assert _kinds(5) == _kinds(5) != _kinds(6)


def _kinds(block: int) -> list[tuple[str, int]]:
    world = hostile_sasl.Block(block)
    return [(kind, len(message)) for kind, message, _ in (world.next_case() for _ in range(200))]
