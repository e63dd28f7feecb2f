"""The producer's engine: batches to brokers, outcomes, sequences, transactions."""
