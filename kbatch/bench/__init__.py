"""kbatch beside its peers, against one broker: what `kbatch bench` and `python -m benchmarks` run.

Theory of operation. A contestant (`contestants`) is a way to use a client, and lives in a process of its own
(`driver`, Driver.java), which does jobs: send so many records, send one each so often, commit transactions.
`contest` gives the contestants of a question the same job in turns, watches the broker and the wire from
outside, and has `log_reader`, a consumer that none of them can influence, read back what arrived: each
partition's count and content, byte by byte. A group (`throughput`, `latency`, `transactions`, `large_table`)
is a few contests and what is asked of their figures; `harness` holds questions, aims and verdicts, `plots`
draws them, and `page` writes them all.

It needs the extra `kbatch[bench]`. Contestants that this machine cannot run are left out, and why is told.
"""
