"""The files by which a broker knows, when it starts, that it has ended cleanly: one in each log directory.

After org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler. A broker that was killed leaves
none; what it tells the controller then makes it no eligible leader any more (KIP-966).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kbatch.codec.segments import sync_directory

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
UNKNOWN_EPOCH = -1


def note_clean_shutdown(folders: Sequence[Path], broker_epoch: int) -> None:
    """Write that the start with this epoch has ended cleanly; a disk that refuses has not."""
    for folder in folders:
        with suppress(OSError):
            (folder / CLEAN_SHUTDOWN_FILE).write_text(json.dumps({"version": 0, "brokerEpoch": broker_epoch}))
            sync_directory(folder)


def take_clean_shutdown(folders: Sequence[Path]) -> int:
    """Return the epoch of the start that has ended cleanly, as all folders say, else UNKNOWN_EPOCH.

    The files are deleted: the start that begins now has not ended.
    """
    epochs = {_taken(folder / CLEAN_SHUTDOWN_FILE) for folder in folders}
    return epochs.pop() if len(epochs) == 1 else UNKNOWN_EPOCH


def _taken(path: Path) -> int:
    try:
        said = json.loads(path.read_text())
        path.unlink()
        return int(said["brokerEpoch"])
    except (OSError, ValueError, KeyError, TypeError):
        return UNKNOWN_EPOCH
