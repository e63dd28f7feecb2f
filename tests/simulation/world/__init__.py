"""What every world has: its options, time, network, brokers, their faults, and the trace of its events."""
