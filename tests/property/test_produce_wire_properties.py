"""Produce requests and answers in C, in every version: the codec judges bytes and fields."""

from __future__ import annotations

import random

import pytest

from kbatch.errors import ProtocolError
from kbatch.protocol import codec
from kbatch.protocol.messages import ProduceRequest, ProduceResponse
from tests.oracle.messages import random_message
from tests.oracle.produce_answers import (
    expected_fields,
    expected_request,
    fields_of,
    frame_of,
    frame_of_answer,
    random_answer,
    random_case,
    written,
)
from tests.property.test_protocol_properties import mutants
from tests.support.effort import EXAMPLES

VERSIONS = pytest.mark.parametrize("version", ProduceRequest.versions)


@VERSIONS
def test_requests_are_written_as_the_codec_does(version: int) -> None:
    for seed in range(4 * EXAMPLES):
        case = random_case(version, seed, most=40)
        assert written(frame_of(case), case) == expected_request(case), seed


@VERSIONS
def test_answers_that_accept_all_are_read_and_no_others(version: int) -> None:
    outcomes = {True: 0, False: 0}
    for seed in range(4 * EXAMPLES):
        case = random_case(version, seed, most=40)
        frame = frame_of(case)
        written(frame, case)
        for number in range(4):
            message = random_answer(case, f"{seed} {number}")
            expected = expected_fields(message, case)
            answer = frame.read(frame_of_answer(message, version))
            outcomes[answer is not None] += 1
            assert (None if answer is None else fields_of(answer)) == expected, (seed, number)
    assert min(outcomes.values()) > EXAMPLES, outcomes


@VERSIONS
def test_foreign_answers_are_left_to_the_codec(version: int) -> None:
    case = random_case(version, "foreign")
    frame = frame_of(case)
    written(frame, case)
    for seed in range(4 * EXAMPLES):
        message = random_message(ProduceResponse, version, seed)
        assert frame.read(frame_of_answer(message, version)) is None


def test_mutants_are_read_alike_or_left_to_the_codec() -> None:
    outcomes = {"read": 0, "left": 0}
    choices = random.Random(1)
    for version in ProduceResponse.versions:
        for seed in range(EXAMPLES):
            case = random_case(version, seed)
            frame = frame_of(case)
            written(frame, case)
            for mutant in mutants(frame_of_answer(random_answer(case, seed), version), choices):
                answer = frame.read(mutant)
                outcomes["left" if answer is None else "read"] += 1
                if answer is not None:
                    _, message = codec.decode_response(ProduceResponse, version, mutant)
                    assert fields_of(answer) == expected_fields(message, case)
    assert min(outcomes.values()) > EXAMPLES, outcomes


@VERSIONS
def test_every_cut_is_left_to_the_codec(version: int) -> None:
    case = random_case(version, "cut")
    frame = frame_of(case)
    written(frame, case)
    seed = next(seed for seed in range(100) if expected_fields(random_answer(case, seed), case) is not None)
    data = frame_of_answer(random_answer(case, seed), version)
    assert frame.read(data) is not None
    for size in range(len(data)):
        assert frame.read(data[:size]) is None
        with pytest.raises(ProtocolError):
            codec.decode_response(ProduceResponse, version, data[:size])
    assert frame.read(data + b"\0") is None
