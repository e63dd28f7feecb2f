"""Clients without sockets, threads or clocks: what they know, and what is to be done next."""
