"""Record batches from columns and into them, and Kafka's log segments."""
