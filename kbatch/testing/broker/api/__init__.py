"""The handlers of requests, one family of APIs per file."""
