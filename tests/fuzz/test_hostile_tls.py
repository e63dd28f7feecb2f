"""Hostile TLS: a channel ends with a clear error for any input, within bounds of memory and time.

`make soak` runs a million cases. A block that fails is replayed with
`python -m tests.fuzz.soak --campaign "hostile tls" --block K`.
"""

import pytest

from tests.fuzz import campaign
from tests.support.certificates import needs_openssl

pytestmark = pytest.mark.slow

CASES = 3_000


@needs_openssl
def test_hostile_tls_ends_with_a_clear_error() -> None:
    tally = campaign.run_block_apart("tests.fuzz.hostile_tls", 0, CASES)
    assert sum(tally.outcomes.values()) == CASES
    # errors of each phase, and connections that go well, must be there
    assert set(tally.outcomes) == {"answered", "refused", "broken", "closed"}
    assert min(tally.outcomes.values()) > CASES // 30, tally.outcomes
