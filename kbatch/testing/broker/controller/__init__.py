"""What the controller of the embedded cluster decides: leaders, in-sync replicas, live brokers."""
