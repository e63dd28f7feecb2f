"""C09: the estimate of how small a batch will get."""

import threading

import pytest

from kbatch import CompressionRatioEstimator
from tests.oracle import plain

CODECS = plain.CODECS
SEQUENCE = (0.3, 0.3, 1.4, 1.41, 0.9, 0.9, 2.0, 0.001)


def at(ratio: float) -> CompressionRatioEstimator:
    """Return an estimator whose estimate for ("t", "gzip") came down to `ratio`."""
    estimator = CompressionRatioEstimator()
    while estimator.estimate("t", "gzip") != ratio:
        estimator.update("t", "gzip", ratio)
    return estimator


@pytest.mark.parametrize(
    ("current", "observed", "updated"),
    [(0.8, 0.84, 0.85), (0.6, 0.7, 0.7), (0.6, 0.4, 0.595), (0.004, 0.001, 0.001), (1.0, 0.3, 0.995)],
)
def test_C09_vectors(current: float, observed: float, updated: float) -> None:
    estimator = at(current)
    assert estimator.update("t", "gzip", observed) == pytest.approx(updated)
    assert estimator.estimate("t", "gzip") == pytest.approx(updated)


@pytest.mark.parametrize("codec", CODECS)
def test_C09_a_sequence_of_updates_follows_the_oracle(codec: str) -> None:
    estimator, expected = CompressionRatioEstimator(), 1.0
    assert estimator.estimate("t", codec) == 1.0
    for observed in SEQUENCE:
        expected = plain.updated_ratio(expected, observed)
        assert estimator.update("t", codec, observed) == expected


def test_topics_codecs_and_estimators_are_apart() -> None:
    estimator, other = CompressionRatioEstimator(), CompressionRatioEstimator()
    estimator.update("t", "gzip", 2.0)
    assert [estimator.estimate("t", codec) for codec in CODECS] == [1.0, 2.0, 1.0, 1.0, 1.0]
    assert estimator.estimate("u", "gzip") == other.estimate("t", "gzip") == 1.0


@pytest.mark.parametrize(("observed", "after"), [(0.4, 1.0), (1.0, 1.0), (1.7, 1.7)])
def test_a_split_sets_the_estimate_to_1_at_least(observed: float, after: float) -> None:
    estimator = at(0.6)
    estimator.reset("t", "gzip", observed)
    assert estimator.estimate("t", "gzip") == after


@pytest.mark.parametrize("observed", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_ratio_is_refused_and_changes_nothing(observed: float) -> None:
    estimator = CompressionRatioEstimator()
    for learn in (estimator.update, estimator.reset):
        with pytest.raises(ValueError, match=f"observed must be a positive number, .* got {observed}"):
            learn("t", "lz4", observed)
    assert estimator.estimate("t", "lz4") == 1.0


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(ValueError, match="none, gzip, snappy, lz4, zstd, got 'brotli'"):
        CompressionRatioEstimator().estimate("t", "brotli")
    with pytest.raises(TypeError, match="topic"):
        CompressionRatioEstimator().estimate(None, "gzip")  # type: ignore[arg-type]


def test_threads_that_meet_a_new_topic_share_its_estimate() -> None:
    estimator = CompressionRatioEstimator()
    start = threading.Barrier(4)

    def learn() -> None:
        start.wait()
        for _ in range(25):
            estimator.update("t", "zstd", 1e-9)

    threads = [threading.Thread(target=learn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert estimator.estimate("t", "zstd") == pytest.approx(1.0 - 100 * 0.005)
