"""The embedded broker: a core that answers requests, a server, and `Broker`, which owns both."""
