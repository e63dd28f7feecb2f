"""kbatch beside its peers against one broker: the implementation of `kbatch bench` and `python -m
benchmarks`.

Theory of operation. A contestant (`contestants`) is one way to use a client, and runs in its own process
(`driver`, Driver.java). It does jobs: send n records, send one per interval, commit transactions. `contest`
gives the contestants of a question the same job in turns, and watches the broker and the wire from outside.
`log_reader`, a consumer that no contestant can influence, reads back what arrived and compares the count and
content of each partition byte by byte. A group (`throughput`, `latency`, `transactions`, `large_table`) runs
a few contests and asks questions of their figures. `harness` holds questions, aims and verdicts, `plots`
draws them, and `page` writes them.

It needs the extra `bench`. Contestants that this machine cannot run are left out with a message.
"""
