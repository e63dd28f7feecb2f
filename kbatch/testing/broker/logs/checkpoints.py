"""Checkpoints: Kafka's small files of rows, such as leader-epoch-checkpoint (CheckpointFile)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from kbatch.codec.segments import sync_directory
from kbatch.errors import CorruptRecordError


def write_checkpoint(path: Path, rows: Sequence[Iterable[object]]) -> None:
    """Write version, count and rows. A crash leaves the old file or the new one."""
    lines = [" ".join(map(str, row)) for row in rows]
    partial = path.with_name(path.name + ".tmp")
    with partial.open("w") as file:
        file.write("\n".join(["0", str(len(rows)), *lines, ""]))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    sync_directory(path.parent)


def read_checkpoint(path: Path, fields: Sequence[Callable[[str], Any]]) -> list[tuple[Any, ...]]:
    """Return the rows, none without a file; raise CorruptRecordError if they do not have these fields."""
    if not path.exists():
        return []
    try:
        version, count, *lines = path.read_text().splitlines()
        if version != "0" or int(count) != len(lines):
            raise ValueError
        return [tuple(kind(text) for kind, text in zip(fields, line.split(), strict=True)) for line in lines]
    except ValueError as error:
        raise CorruptRecordError(
            f"{path} must be a checkpoint of version 0; delete it to go on without it"
        ) from error
