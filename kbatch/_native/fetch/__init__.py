"""What a Fetch brought: frames of memory, answers, and the records in them."""
