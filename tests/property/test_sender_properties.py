"""What holds for the sender whatever is waiting to be sent."""

from __future__ import annotations

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.sending import OK, Sending

EXAMPLES = int(os.environ.get("KBATCH_EXAMPLES", 200))
PARTITIONS = 6

records = st.lists(
    st.tuples(st.integers(0, PARTITIONS - 1), st.sampled_from([10, 400, 900, 20_000])),
    min_size=4,
    max_size=20,
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    records=records,
    later=st.just([]) | records,
    request_bytes=st.sampled_from([1000, 2500, 50_000]),
    seals_at_once=st.booleans(),
)
def test_A04_open_batches_go_out_with_nothing_but_answers_however_small_requests_are(
    records: list[tuple[int, int]], later: list[tuple[int, int]], request_bytes: int, seals_at_once: bool
) -> None:
    """No time passes, and nobody else wakes the sender: it may not leave anything for then."""
    s = Sending(PARTITIONS, batch_size=60_000, max_request_size=request_bytes)
    s.seals_at_once = seals_at_once
    for prefix, each in (("r", records), ("l", later)):
        for number, (partition, size) in enumerate(each):
            s.put(f"{prefix}{number}", partition=partition, size=size)
        s.run()
    while s.waiting_requests or s.unsealed:
        if s.unsealed:
            s.seal()
            s.run()
        else:
            s.answer(**{batch.name: OK for batch in s.waiting_requests[0].batches})
    assert all(s.is_done(name) for name in s.deliveries)
