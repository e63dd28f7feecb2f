"""What share groups deliver (KIP-932): acquired records, their locks and counts, sessions, stored states."""
