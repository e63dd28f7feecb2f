"""The threads of the process by their names, which carry the client.id."""

import threading


def threads_named(*prefixes: str) -> list[threading.Thread]:
    """Return the running threads whose names begin with one of these."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(prefixes)]
