"""What `process()` decides, without sockets, threads and clocks: what runs next, and what is committed."""
