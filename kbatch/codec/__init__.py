"""Record batches from and to columns, and Kafka's log segments."""
