"""The TopicReaders that a worker process of Spark keeps from task to task, with connections and metadata.

Theory of operation. A task takes the reader of its settings, and puts it back at its end; an error closes it
instead. A reader that no task has taken for IDLE_SECONDS is closed, so that a worker without tasks has no
connections and threads, and logs nothing when the cluster goes away.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kbatch.consumer.topic_reader import TopicReader
from kbatch.errors import KafkaError

IDLE_SECONDS = 10.0

_Key = tuple[tuple[str, str], ...]


class KeptReaders:
    """Readers by their settings. Threads may take readers at the same time; each has its own.

    Parameters
    ----------
    idle_seconds : float
        The time after which an unused reader is closed.
    """

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._kept: dict[_Key, tuple[TopicReader, threading.Timer]] = {}

    @contextmanager
    def reader(self, settings: Mapping[str, str]) -> Iterator[TopicReader]:
        """Lend a reader with these settings to a with block."""
        key = tuple(sorted(settings.items()))
        reader = self._take(key) or TopicReader({"client.id": "kbatch-spark", **settings})
        try:
            yield reader
        except KafkaError:  # which it may not have survived
            reader.close()
            raise
        finally:
            if reader.is_open:
                self._keep(key, reader)

    def close(self) -> None:
        """Close all readers that are not lent."""
        for key in list(self._kept):
            reader = self._take(key)
            if reader is not None:
                reader.close()

    def _take(self, key: _Key) -> TopicReader | None:
        with self._lock:
            found = self._kept.pop(key, None)
        if found is None:
            return None
        reader, timer = found
        timer.cancel()
        return reader

    def _keep(self, key: _Key, reader: TopicReader) -> None:
        timer = threading.Timer(self._idle_seconds, self._close_idle, (key, reader))
        timer.daemon = True
        with self._lock:
            older = self._kept.get(key)
            self._kept[key] = reader, timer
        timer.start()
        if older is not None:  # two tasks have run at the same time
            older[1].cancel()
            older[0].close()

    def _close_idle(self, key: _Key, reader: TopicReader) -> None:
        with self._lock:
            if key not in self._kept or self._kept[key][0] is not reader:
                return  # a task has it again
            del self._kept[key]
        reader.close()


kept_readers = KeptReaders()
atexit.register(kept_readers.close)
