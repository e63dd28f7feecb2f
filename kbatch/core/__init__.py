"""The client without sockets, threads and clocks: what it knows, and what is to be done next.

`engine` is the door; nothing else in here is imported from outside.
"""
