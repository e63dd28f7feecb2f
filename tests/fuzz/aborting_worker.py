"""The worker of docs/examples/consume_transform_produce.py with smaller transactions, some aborted first."""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "docs" / "examples"))

import consume_transform_produce as example

import kbatch

example.MOST_RECORDS = 40
ABORTED_PART = 0.3


class AbortingWorker(example.Worker):
    """Each value of an aborted transaction is b"aborted"."""

    def __init__(self, **given: str) -> None:
        super().__init__(**given)
        self.rng = random.Random(given["name"])

    def process(self, polled: kbatch.Polled) -> None:
        if self.rng.random() < ABORTED_PART:
            self.abort(polled)
        super().process(polled)

    def abort(self, polled: kbatch.Polled) -> None:
        try:
            self.producer.begin_transaction()
            for record in polled:
                self.producer.send(self.target, b"aborted", record.key)
            if self.rng.random() < 0.5:
                self.producer.flush()
            self.producer.send_offsets_to_transaction(polled.offsets, self.consumer)
        except kbatch.KafkaError as error:
            if error.fatal:
                raise
        example.until_known(self.producer.abort_transaction)


if __name__ == "__main__":
    example.main(AbortingWorker)
