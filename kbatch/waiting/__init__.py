"""How a caller waits: a thread (`threads`), a task of an event loop (`event_loop`) or of virtual time."""
