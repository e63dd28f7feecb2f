"""FramePool: which blocks frames get, and when the blocks come back."""

import threading

import pytest

from kbatch._native.fetch.frames import Frame, FramePool

KIB, MIB = 1 << 10, 1 << 20
# The room of a block for what an answer has beside the records.
FIELDS = 64 * KIB
SMALLEST = 256 * KIB + FIELDS


@pytest.mark.parametrize(
    ("size", "block"),
    [
        *((64 * KIB, SMALLEST), (SMALLEST, SMALLEST), (SMALLEST + 1, 512 * KIB + FIELDS)),
        *((MIB, MIB + FIELDS), (4 * MIB + 300, 4 * MIB + FIELDS), (4 * MIB + FIELDS, 4 * MIB + FIELDS)),
        *((64 * MIB, 64 * MIB + FIELDS), (65 * MIB, 65 * MIB)),
    ],
)
def test_frame_has_its_size_and_the_block_its_class(size: int, block: int) -> None:
    pool = FramePool()
    frame = pool.take(size)
    assert (len(frame), len(memoryview(frame)), pool.used_bytes) == (size, size, block)
    if size:
        view = memoryview(frame)
        view[0], view[-1] = 1, 2
        assert (view[0], view[-1]) == (1 if size > 1 else 2, 2)
        del view
    del frame
    assert pool.used_bytes == 0
    assert pool.spare_bytes == (block if block <= 32 * MIB else 0)


@pytest.mark.parametrize("size", [0, 1, 64 * KIB - 1])
def test_small_frames_have_memory_of_their_size(size: int) -> None:
    pool = FramePool()
    frame = pool.take(size)
    assert (len(frame), pool.used_bytes) == (size, size)
    memoryview(frame)[:] = bytes(size)
    del frame
    assert (pool.used_bytes, pool.spare_bytes) == (0, 0)


def test_R31_block_is_reused_after_the_last_view() -> None:
    pool = FramePool()
    frame = pool.take(100 * KIB)
    view = memoryview(frame)
    view[:5] = b"first"
    piece = view[2:4]
    del frame, view
    other = pool.take(100 * KIB)
    assert pool.used_bytes == 2 * SMALLEST
    assert bytes(piece) == b"rs"
    del other
    assert (pool.used_bytes, pool.spare_bytes) == (SMALLEST, SMALLEST)
    del piece
    assert (pool.used_bytes, pool.spare_bytes) == (0, 2 * SMALLEST)
    again = pool.take(70 * KIB)
    assert bytes(again)[:5] == b"first"
    assert pool.spare_bytes == SMALLEST


def test_spare_bytes_are_bounded() -> None:
    pool = FramePool(spare_bytes=MIB)
    frames = [pool.take(SMALLEST) for _ in range(4)]
    frames.clear()
    assert (pool.used_bytes, pool.spare_bytes) == (0, 3 * SMALLEST)


def test_frames_outlive_their_pool() -> None:
    pool = FramePool()
    view = memoryview(pool.take(3 * MIB))
    del pool
    view[-1] = 7
    assert view[-1] == 7


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="size must not be negative, got -1"):
        FramePool().take(-1)
    with pytest.raises(ValueError, match="spare_bytes must not be negative, got -1"):
        FramePool(spare_bytes=-1)
    with pytest.raises(TypeError, match=r"FramePool\.take"):
        Frame()


def test_failed_take_is_not_counted() -> None:
    pool = FramePool()
    with pytest.raises(MemoryError, match="no memory for a frame"):
        pool.take(2**62)
    assert pool.used_bytes == 0


def test_threads_share_a_pool() -> None:
    pool = FramePool()

    def use() -> None:
        for number in range(2000):
            view = memoryview(pool.take(1 + number * 97))
            view[0] = view[-1] = number & 0xFF
            assert view[0] == number & 0xFF

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pool.used_bytes == 0
