"""The standard library's own threads, locks and selectors, whatever gevent or eventlet has put in place.

Theory of operation. Monkey patching turns threads into greenlets, which take turns on one thread of the
system and must never block it. The threads of a client wait in native code, so they must be real. Where a
library has patched modules, private copies of them are made from their sources, as if nothing was patched.
Elsewhere the modules themselves are used.

A program's own calls must let other greenlets run while they wait: see `cooperative_sleep`.
"""

from __future__ import annotations

import _socket
import builtins
import importlib.util
import socket
import sys
import threading
import time
from _queue import Empty, SimpleQueue
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any

__all__ = [
    "Empty",
    "SimpleQueue",
    "breaks_asyncio",
    "cooperative_sleep",
    "patching_library",
    "real_names",
    "real_selectors",
    "real_sleep",
    "real_socket",
    "real_threading",
    "shut_down",
]


# The modules of these libraries that patch others. Where none is imported, nothing is patched.
PATCHERS = "gevent.monkey", "eventlet.patcher"


def patching_library() -> str | None:
    """Return the name of the library that has patched the standard library's modules, if there is one."""
    monkey, patcher = map(sys.modules.get, PATCHERS)
    if monkey is not None and monkey.is_anything_patched():
        return "gevent"
    if patcher is not None and any(map(patcher.is_monkey_patched, ("thread", "socket", "select", "time"))):
        return "eventlet"
    return None


def breaks_asyncio() -> bool:
    """True if asyncio's threads cannot work: gevent has patched their queues and left threads alone."""
    if patching_library() != "gevent":
        return False
    is_patched = sys.modules["gevent.monkey"].is_module_patched
    return bool(is_patched("queue") and not is_patched("_thread"))


def cooperative_sleep() -> Callable[[float], object] | None:
    """Return how a program's thread sleeps while other greenlets run; None if it has none."""
    library = patching_library()
    return None if library is None else sys.modules[library].sleep


def real_threading() -> Any:
    """Return the module `threading`, with real threads."""
    return threading if patching_library() is None else _copies()["threading"]


def real_selectors() -> Any:
    """Return the module `selectors`, with selectors that block their thread."""
    import selectors

    return selectors if patching_library() is None else _copies()["selectors"]


def real_socket(family: int) -> socket.socket:
    """Return a new TCP socket, whose calls do not switch greenlets."""
    kind: Any = socket.socket if patching_library() is None else _socket.socket
    return kind(family, socket.SOCK_STREAM)  # type: ignore[no-any-return]


def shut_down(connected: Any) -> None:
    """Shut down a socket of any kind, so that a thread that waits for it goes on. OSError if it has ended."""
    if not isinstance(connected, _socket.socket):  # eventlet's sockets, and gevent's, hold a real one
        connected = connected.fd if hasattr(connected, "fd") else connected._sock
    _socket.socket.shutdown(connected, _socket.SHUT_RDWR)  # TLS keeps its state, for that thread


def real_names() -> Any:
    """Return the module with a `getaddrinfo` and a `getnameinfo` that block their thread."""
    return socket if patching_library() is None else _socket


def real_sleep(seconds: float) -> None:
    """Block the calling thread."""
    (time if patching_library() is None else _copies()["time"]).sleep(seconds)


@cache
def _copies() -> Mapping[str, ModuleType]:
    """Return private copies of modules by name, made once."""
    copies: dict[str, ModuleType] = {}
    for name in ("_thread", "time", "threading", "select", "selectors"):
        copies[name] = _copy(name, copies)
    return copies


def _copy(name: str, copies: Mapping[str, ModuleType]) -> ModuleType:
    """Return another module of the same source, which imports the copies that there are."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)

    def import_module(wanted: str, *rest: Any) -> Any:
        return copies[wanted] if wanted in copies else __import__(wanted, *rest)

    vars(module)["__builtins__"] = {**vars(builtins), "__import__": import_module}
    spec.loader.exec_module(module)
    return module
