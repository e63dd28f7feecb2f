"""The waker, which ends a wait for sockets."""

from __future__ import annotations

import gc
import os
import selectors
import threading

import pytest

from kbatch._native.io.waker import Waker


@pytest.fixture(params=["eventfd", "socketpair"], autouse=True)
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with eventfd, and without."""
    if request.param == "socketpair":
        monkeypatch.delattr(os, "eventfd", raising=False)
    elif not hasattr(os, "eventfd"):
        pytest.skip("this system has no eventfd")


@pytest.fixture
def waker(system: None) -> Waker:
    return Waker()


def is_awake(waker: Waker) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(waker, selectors.EVENT_READ)
        return bool(selector.select(0))


def test_a_wake_lasts_until_it_is_cleared(waker: Waker) -> None:
    assert not is_awake(waker)
    waker.wake()
    assert is_awake(waker)
    assert is_awake(waker)
    waker.clear()
    assert not is_awake(waker)


def test_many_wakes_are_one(waker: Waker) -> None:
    for _ in range(100):
        waker.wake()
    waker.clear()
    assert not is_awake(waker)


def test_a_clear_in_vain_does_not_wait(waker: Waker) -> None:
    waker.clear()
    assert not is_awake(waker)


def test_uncleared_wakes_neither_wait_nor_fail(waker: Waker) -> None:
    for _ in range(100_000):  # more than a socket takes
        waker.wake()
    assert is_awake(waker)


def test_each_thread_can_wake(waker: Waker) -> None:
    threads = [threading.Thread(target=waker.wake) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert is_awake(waker)


def test_descriptor_stays_open_while_a_writer_may_use_it() -> None:
    waker = Waker()
    wake, descriptor = waker.wake, waker.fileno()
    del waker
    gc.collect()
    wake()
    assert is_open(descriptor)
    del wake
    gc.collect()
    assert not is_open(descriptor)


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
