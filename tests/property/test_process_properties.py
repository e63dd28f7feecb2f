"""Properties of what `process()` commits, for any order in which records finish."""

from __future__ import annotations

import zlib
from base64 import b85encode
from itertools import pairwise
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kbatch.core.process.finished_runs import (
    MOST_CHARACTERS,
    VERSION,
    MetadataError,
    Run,
    decode_runs,
    encode_runs,
    id_text,
    merged,
)
from kbatch.core.process.progress import PartitionProgress
from kbatch.records import NO_TOPIC_ID
from tests.support.effort import EXAMPLES

TOPIC_ID = bytes(range(16))
ENDLESS = 2**63 - 1
offsets = st.sampled_from([0, 5, 2**40])
# Gaps and sizes of runs, in turns.
lengths = st.lists(
    st.tuples(st.integers(1, 300) | st.just(1), st.integers(1, 300) | st.just(1)), max_size=200
)


def runs_of(offset: int, found: list[tuple[int, int]]) -> list[Run]:
    runs, at = [], offset
    for gap, size in found:
        runs.append((at + gap, at + gap + size))
        at += gap + size
    return runs


@settings(max_examples=3 * EXAMPLES)
@given(offsets, lengths, st.sampled_from([TOPIC_ID, NO_TOPIC_ID]))
def test_POOL13_runs_are_read_back(offset: int, found: list[tuple[int, int]], topic_id: bytes) -> None:
    runs = runs_of(offset, found)
    text, is_whole = encode_runs(offset, runs, topic_id, MOST_CHARACTERS)
    assert is_whole and text.isascii() and len(text) <= MOST_CHARACTERS
    assert decode_runs(offset, text, topic_id, ENDLESS) == runs


@settings(max_examples=3 * EXAMPLES)
@given(offsets, lengths, st.integers(0, 200))
def test_POOL15_what_does_not_fit_is_cut_from_the_end(
    offset: int, found: list[tuple[int, int]], most: int
) -> None:
    runs = runs_of(offset, found)
    text, is_whole = encode_runs(offset, runs, TOPIC_ID, most)
    kept = decode_runs(offset, text, TOPIC_ID, ENDLESS)
    assert len(text) <= most
    assert kept == runs[: len(kept)] and is_whole is (kept == runs)
    if not is_whole:  # one more would not have fitted
        assert len(encode_runs(offset, runs[: len(kept) + 1], TOPIC_ID, MOST_CHARACTERS)[0]) > most


def test_POOL13_the_default_limits_always_fit() -> None:
    """1,000 unfinished records within 100,000 offsets."""
    random = Random(1)
    for span in (2_000, 6_000, 50_000, 100_000):
        unfinished = sorted(random.sample(range(1, span), 999))
        edges = [0, *unfinished, span]
        runs = [(before + 1, after) for before, after in pairwise(edges) if after > before + 1]
        text, is_whole = encode_runs(0, runs, TOPIC_ID, MOST_CHARACTERS)
        assert is_whole and decode_runs(0, text, TOPIC_ID, span) == runs


HEAD = VERSION + "{}" + id_text(TOPIC_ID)


@settings(max_examples=5 * EXAMPLES)
@given(st.text(max_size=60) | st.tuples(st.sampled_from("rbz"), st.binary(max_size=60)), st.integers(0, 100))
@example(("r", b"\x00\x01"), 5)
@example(("r", b"\xff" * 20), 5)
@example(("r", b"\x01"), 5)
@example(("b", b"\x01"), 5)
@example("kb2rAAECAw", 5)
def test_POOL13_junk_says_nothing(junk: str | tuple[str, bytes], offset: int) -> None:
    text = junk if isinstance(junk, str) else HEAD.format(junk[0]) + b85encode(junk[1]).decode()
    try:
        runs = decode_runs(offset, text, TOPIC_ID, 1000)
    except MetadataError:
        return
    edges = [offset, *(each for run in runs for each in run)]
    assert all(before < after for before, after in pairwise(edges)) and edges[-1] <= 1000


def test_POOL13_what_unpacks_to_too_much_says_nothing() -> None:
    bomb = HEAD.format("z") + b85encode(zlib.compress(b"\x01" * (4 << 20), 9)).decode()
    with pytest.raises(MetadataError, match="too large"):
        decode_runs(0, bomb, TOPIC_ID, ENDLESS)


def test_POOL26_runs_of_another_topic_or_log_say_nothing() -> None:
    text, _ = encode_runs(5, [(7, 9)], TOPIC_ID, MOST_CHARACTERS)
    assert decode_runs(5, text, TOPIC_ID, 9) == [(7, 9)]
    with pytest.raises(MetadataError, match="another topic"):
        decode_runs(5, text, bytes(16), 9)
    with pytest.raises(MetadataError, match="after the end"):
        decode_runs(5, text, TOPIC_ID, 8)


@settings(max_examples=3 * EXAMPLES)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10)), max_size=20))
def test_merged_runs_have_the_same_offsets(found: list[tuple[int, int]]) -> None:
    runs = [(first, first + size) for first, size in sorted(found)]
    together = merged(runs)
    both = [{offset for run in some for offset in range(*run)} for some in (runs, together)]
    assert both[0] == both[1]
    assert all(before[1] < after[0] for before, after in pairwise(together))


@settings(max_examples=3 * EXAMPLES)
@given(st.integers(0, 2**32), st.sampled_from([MOST_CHARACTERS, 30, 12, 0]), st.sampled_from([1, 4, 40]))
def test_POOL03_commits_say_what_is_finished_and_no_more(seed: int, most: int, width: int) -> None:
    """A log with gaps, and a process that is killed and begun again: nothing unfinished is passed."""
    random = Random(seed)
    log, at = [], random.choice([0, 7])
    for _ in range(random.randrange(1, 60)):
        log.append(at)
        at += random.choice([1, 1, 1, 2, 9])
    finished: set[int] = set()
    committed = (log[0], "")
    for _ in range(4):
        runs = decode_runs(committed[0], committed[1], TOPIC_ID, at)
        progress = PartitionProgress(committed[0], runs, topic_id=TOPIC_ID)
        progress.most_characters = most
        known = {each for each in log if each < committed[0] or any(a <= each < b for a, b in runs)}
        assert known <= finished
        waiting = [each for each in log if each >= committed[0]]
        here = set(known)
        for _ in range(random.randrange(100)):
            if waiting and len(progress.unfinished) < width and random.random() < 0.6:
                offset = waiting.pop(0)
                assert progress.take(offset, 3, 0) is (offset not in known)
            elif progress.unfinished:
                done = random.choice(progress.unfinished)
                progress.finish(done)
                here.add(done)
                finished.add(done)
            if random.random() < 0.2:
                commit = progress.offset()
                runs = decode_runs(commit.offset, commit.metadata, TOPIC_ID, at)
                said = {each for each in log if each < commit.offset or any(a <= each < b for a, b in runs)}
                assert said <= finished and commit.offset >= committed[0]
                assert progress.is_cut or said >= here
                committed = (commit.offset, commit.metadata)


def test_what_was_never_taken_cannot_finish() -> None:
    progress = PartitionProgress(5)
    progress.take(5, 0, 0)
    with pytest.raises(ValueError, match="offset 6"):
        progress.finish(6)
    progress.finish(5)
    with pytest.raises(ValueError, match="offset 5"):
        progress.finish(5)


def test_POOL28_a_shorter_log_forgets_what_it_has_lost() -> None:
    progress = PartitionProgress(0, [(4, 6), (8, 20)], leader_epoch=1)
    for offset in (0, 1, 2, 3, 6):
        progress.take(offset, 1 if offset < 3 else 2, 0)
    progress.finish(1)
    progress.truncate(3)
    assert (progress.unfinished, progress.end, progress.runs_ahead) == ([0, 2], 3, [])
    assert progress.offset().leader_epoch == 1
    for offset in (0, 2):
        progress.finish(offset)
    assert (progress.offset().offset, progress.offset().metadata) == (3, "")


def test_offset_has_the_leader_epoch_of_the_record_before() -> None:
    progress = PartitionProgress(10, leader_epoch=3)
    for offset, epoch in ((10, 3), (11, 4), (12, 4), (13, 6)):
        progress.take(offset, epoch, 0)
    epochs = []
    for offset in (10, 11, 12, 13):
        epochs.append(progress.offset().leader_epoch)
        progress.finish(offset)
    assert [*epochs, progress.offset().leader_epoch] == [3, 3, 4, 4, 6]
