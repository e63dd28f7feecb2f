"""The types of the plain methods are those of the coroutines, and at run time each is there."""

from __future__ import annotations

import inspect

import pytest

from kbatch.admin import client, stubs, threads
from kbatch.admin.client import Admin
from kbatch.admin.event_loop import AsyncAdmin

PARTS = [name for name, value in vars(Admin).items() if isinstance(value, property)]


def test_stub_is_what_the_coroutines_say() -> None:
    assert stubs.STUB.read_text() == stubs.stub(), "run `python -m kbatch.admin.stubs`"


@pytest.mark.parametrize("part", PARTS)
def test_both_admins_have_the_same_methods(part: str) -> None:
    plain = getattr(threads, part.capitalize())
    coroutines = getattr(client, f"Async{part.capitalize()}")
    assert isinstance(vars(AsyncAdmin)[part], property)
    methods = {name for name in vars(coroutines) if not name.startswith("_")}
    assert methods == {name for name in vars(plain) if not name.startswith("_")}
    for name in methods:
        assert getattr(plain, name).__doc__ == getattr(coroutines, name).__doc__
        assert not inspect.iscoroutinefunction(getattr(plain, name))
