"""Producer (`threads`) and AsyncProducer (`event_loop`), and what both do (`base`)."""
