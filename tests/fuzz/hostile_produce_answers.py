"""The campaign of hostile answers to Produce: what a broker may send, read as the sender reads it.

Theory of operation. As in hostile_answers.py, a round takes a valid answer and bends ROUND_CASES copies of it
in one way. `ProduceFrame.read` accepts a copy or leaves it to the codec. What it accepts the codec must read
alike: a batch that counts as delivered and is not would be lost. Of the others, some are read by the codec,
which must refuse them by a ProtocolError or find what is unusual in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from kbatch._native.send.produce_wire import ProduceFrame
from kbatch.errors import ProtocolError
from kbatch.protocol import codec
from kbatch.protocol.messages import ProduceResponse
from tests.fuzz import campaign
from tests.fuzz.hostile_answers import (
    ROUND_CASES,
    Original,
    cut_off,
    double_pieces,
    drop_pieces,
    flip_bits,
    lay_integers,
    lay_noise,
    lay_varints,
    move_pieces,
)
from tests.oracle.produce_answers import (
    Case,
    expected_fields,
    fields_of,
    frame_of,
    frame_of_answer,
    random_answer,
    random_case,
    written,
)

BLOCK_CASES = 2_000_000
GROWTH_BYTES = 64 << 20
WARMING_CASES = 5_000
ORIGINALS = 400
# Of the cases that are left to the codec, it reads one of so many.
CODEC_EVERY = 50
WAYS = {
    flip_bits: 25,
    lay_noise: 15,
    lay_integers: 20,
    lay_varints: 15,
    move_pieces: 10,
    drop_pieces: 5,
    double_pieces: 5,
    cut_off: 5,
}


class Exchange(NamedTuple):
    """A request that was written, and an answer to it."""

    case: Case
    frame: ProduceFrame
    answer: bytes


@cache
def exchanges() -> list[Exchange]:
    """Return exchanges of every version; two thirds of the answers accept all."""
    made = []
    for seed in range(ORIGINALS):
        version = ProduceResponse.versions[seed % len(ProduceResponse.versions)]
        case = random_case(version, seed, most=30 if seed % 20 == 0 else 4)
        frame = frame_of(case)
        written(frame, case)
        made.append(Exchange(case, frame, frame_of_answer(random_answer(case, seed), version)))
    return made


def rounds(block: object, count: int) -> Iterator[tuple[str, Exchange, list[bytes]]]:
    """Yield the rounds of a block, the same for the same number: way, exchange, bent answers."""
    rng = np.random.default_rng(list(f"hostile produce answers {block}".encode()))
    ways, weights = list(WAYS), np.array(list(WAYS.values())) / sum(WAYS.values())
    for _ in range(count):
        exchange = exchanges()[rng.integers(ORIGINALS)]
        way = ways[rng.choice(len(ways), p=weights)]
        copies, _ = way(Original(exchange.case.version, exchange.answer, (), (0, 0)), rng)
        # objects of their own, so that a sanitizer sees a read beyond the end
        yield way.__name__, exchange, [copy.tobytes() for copy in copies]


def outcome(data: bytes, exchange: Exchange, *, by_codec: bool) -> str:
    """Read a case, and return what became of it."""
    case = exchange.case
    answer = exchange.frame.read(data)
    if answer is None and not by_codec:
        return "left to the codec"
    try:
        _, message = codec.decode_response(ProduceResponse, case.version, data)
    except ProtocolError as error:
        assert answer is None and str(error)
        return "refused"
    expected = expected_fields(message, case)
    if answer is None:
        return "left to the codec" if expected is None else "left though usual"
    assert fields_of(answer) == expected
    return "accepted"


def play(run: campaign.Run) -> None:
    """Check a block's cases."""
    campaign.play_bounded(run, lambda run: run.judge(_cases(run)), WARMING_CASES, GROWTH_BYTES)


def _cases(run: campaign.Run) -> Iterator[campaign.Case]:
    for name, exchange, cases in rounds(run.block, max(run.cases // ROUND_CASES, 1)):
        described = f"{name}, version {exchange.case.version}"
        for place, case in enumerate(cases):
            yield described, case, partial(outcome, case, exchange, by_codec=place % CODEC_EVERY == 0)
