"""Record batches as bytes: memory, checksums, compression, reading and writing."""
