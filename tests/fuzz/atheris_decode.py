"""Coverage-guided fuzzing of what reads batches, by hand:

    pip install atheris
    python -m tests.fuzz.atheris_decode -max_total_time=120 corpus/

Arguments are libFuzzer's. atheris sees the branches of Python code alone, so the native modules are reached
with help: libFuzzer's bytes choose a valid batch, are laid over its records or its stream, and mostly get the
right length and CRC.
"""

import random
import sys

import atheris

with atheris.instrument_imports(include=["kbatch", "tests.fuzz.hostile_bytes"]):
    from tests.fuzz import hostile_bytes

from tests.fuzz import mutator
from tests.oracle import plain


def test_one_input(data: bytes) -> None:
    """Any exception is a finding: `judge` knows which ones readers may raise."""
    provider = atheris.FuzzedDataProvider(data)
    rng = random.Random(provider.ConsumeIntInRange(0, 2**16))
    raw, in_records = provider.ConsumeBool(), provider.ConsumeBool()
    small, _ = mutator.originals()
    original = provider.PickValueInList(small)
    at = provider.ConsumeIntInRange(0, len(original.stream))
    laid_over = provider.ConsumeBytes(provider.remaining_bytes())
    if raw:
        hostile_bytes.judge(laid_over)
        return
    records = b"".join(map(mutator.record_bytes, original.records))
    if in_records:
        records = records[:at] + laid_over + records[at + len(laid_over) :]
        stream = plain.compress(records, original.compression)
    else:
        stream = original.stream[:at] + laid_over + original.stream[at + len(laid_over) :]
    hostile_bytes.judge(mutator.sealed(original.header, stream, rng, repair=0.9))


def main() -> None:
    mutator.originals()
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
