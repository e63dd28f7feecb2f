"""Hostile requests: the embedded broker answers each or closes the connection, and continues.

`make soak` runs fifty times as many. A block that fails is replayed with
`python -m tests.fuzz.soak --campaign "hostile requests" --block K`; its last cases, which go over sockets,
are the same but may be cut otherwise.
"""

import random
import struct

import pytest

from kbatch.errors import ProtocolError, UnsupportedVersionError
from kbatch.protocol import codec, messages
from kbatch.protocol.structs import Message
from tests.fuzz import campaign, hostile_connections, hostile_requests, request_mutator
from tests.fuzz.request_judge import expected
from tests.fuzz.requests import KINDS, Persona, Requests
from tests.oracle.messages import random_message

pytestmark = pytest.mark.slow

BLOCKS, CASES = (0, 1), 1_000
NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("block", BLOCKS, ids=["in memory", "with a directory"])
def test_broker_answers_or_refuses_every_request_and_continues(block: int) -> None:
    tally = campaign.run_block_apart("tests.fuzz.hostile_requests", block, CASES)
    assert sum(tally.outcomes.values()) == CASES
    # valid and broken ones must both be there
    assert min(tally.outcomes["answered"], tally.outcomes["closed"]) > CASES // 10, tally.outcomes


def test_a_replayed_block_is_the_same() -> None:
    first, second = (_frames(number, 200) for number in (5, 5))
    assert first == second != _frames(6, 200)


def _frames(block: int, count: int) -> list[bytes]:
    world = hostile_requests.Block(block, None)
    frames = []
    for _ in range(count):
        world.pause()
        _, client, frame = world.next_case()
        frames.append(frame)
        world.try_case(client, frame)
    return frames


# The judges


@pytest.mark.parametrize("kind", messages.REQUESTS.values(), ids=lambda kind: kind.__name__)
def test_the_pieces_of_a_request_are_what_the_codec_writes(kind: type[Message]) -> None:
    for version in kind.versions:
        for seed in range(10):
            message = random_message(kind, version, seed)
            whole = b"".join(codec.encode_request(message, version, 7, "client"))[4:]
            assert request_mutator.taken_apart(message, version, 7, "client").frame == whole


@pytest.mark.parametrize("mutation", request_mutator.MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_mutation_breaks_requests(mutation: request_mutator.Mutation) -> None:
    """Exceptions are the mutation that changes nothing, the one that only changes values, and the one that
    adds bytes after a request, which are ignored.
    """
    rng = random.Random(mutation.__name__)
    persona = Persona(1, rng, {})
    unreadable = changed = 0
    for _ in range(200):
        request, other = (_random_request(persona, rng) for _ in range(2))
        frame = mutation(request, other, rng)
        changed += frame != request.frame
        try:
            codec.decode_request(frame)
        except (ProtocolError, UnsupportedVersionError):
            unreadable += 1
    assert (changed > 0) == (mutation is not request_mutator.nothing)
    is_readable = mutation in (request_mutator.nothing, request_mutator.bend_value, request_mutator.append)
    assert unreadable == 0 if is_readable else unreadable > 0


def _random_request(persona: Persona, rng: random.Random) -> request_mutator.Request:
    kind = rng.choice(KINDS)
    version = rng.choice(kind.versions)
    return request_mutator.taken_apart(
        Requests(persona, rng, NOW_MS).message(kind, version), version, 1, None
    )


def test_socket_responses_match_requests_in_order() -> None:
    frames = [
        b"".join(codec.encode_request(messages.ApiVersionsRequest(), 0, number))[4:] for number in range(3)
    ]
    wanted = [expected(frame) for frame in frames]
    answers = [
        b"".join(codec.encode_response(messages.ApiVersionsResponse(), 0, number)) for number in range(3)
    ]
    hostile_connections.check_answers(b"".join(answers), wanted)
    hostile_connections.check_answers(answers[0] + answers[1][:-1], wanted)
    for wrong in (answers[1], answers[0] * 2, b"".join(answers) + answers[0]):
        with pytest.raises(AssertionError):
            hostile_connections.check_answers(wrong, wanted)
    with pytest.raises(ProtocolError):
        hostile_connections.check_answers(struct.pack(">i", 4) + answers[0][4:8], wanted)
