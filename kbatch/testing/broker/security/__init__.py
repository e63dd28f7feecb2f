"""Who may connect, log in and do what."""
