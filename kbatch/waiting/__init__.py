"""How a caller waits: a thread (`threads`) or a task of an event loop (`event_loop`)."""
