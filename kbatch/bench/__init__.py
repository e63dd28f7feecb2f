"""kbatch beside other clients, on one broker: `kbatch bench`, and what `benchmarks/` builds on.

Theory of operation. A contestant (`contestants`) is one way to use a client (`clients`, `async_clients`), and
runs in its own process (`driver`), with the same settings (`settings`). `contest` gives it a job: send n
records, send one per interval, commit transactions. `log_reader`, a consumer that no contestant can
influence, reads back what arrived and compares the count and content of each partition byte by byte. `groups`
has the jobs and their tables. Contestants that this machine cannot run are left out with a message.

It needs the extra `bench`.
"""
