"""How long a test waits for an event that must come."""

# Only what hangs takes that long, however busy the machine is.
HANG_SECONDS = 600.0
HANG_MS = int(HANG_SECONDS * 1000)
