"""A folder of log segments that several tasks write together: staging, commit, manifests.

    path/<topic>-<partition>/<first offset>.log, .index, .timeindex    as in a broker's log.dirs
    path/<topic>.json                                  manifest: what a finished write put there
    path/.kbatch-<job>/task-<task>-attempt-<attempt>/  written by tasks, not committed

A commit renames what its tasks staged into place, and the manifest last. The staging folder exists until
then, so readers can detect an unfinished write.
"""

import json
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

from kbatch.codec.segments import sync_directory

FORMAT = "kbatch-segments"
VERSION = 1
STAGING_PREFIX = ".kbatch-"
# Short, because Kafka's topic names may come within 6 bytes of the limit of file systems.
MANIFEST_SUFFIX = ".json"


@dataclass(frozen=True)
class PartitionFiles:
    """The files of one Kafka partition from one task; sizes are those of the .log files, in bytes."""

    next_offset: int
    batches: int
    segments: dict[str, int]


@dataclass(frozen=True)
class StoredSegment:
    """A .log file to read."""

    topic: str
    partition: int
    log_path: str


def local_path(path: str) -> Path:
    """Return the folder of the option `path`. Raise ValueError for a file system that is not mounted."""
    scheme, colon, after_scheme = path.partition(":")
    if not colon or "/" in scheme:
        return Path(path).absolute()
    if scheme == "file" and (after_scheme.startswith("///") or not after_scheme.startswith("//")):
        return Path("/" + after_scheme.lstrip("/"))
    raise ValueError(
        f"option 'path' must be a local folder, or one mounted on all machines, got {path!r}; "
        "write there and copy the files"
    )


def topic_folders(path: Path) -> dict[str, dict[int, Path]]:
    """Return topic -> partition -> folder, from the names of the folders in `path`."""
    found: dict[str, dict[int, Path]] = defaultdict(dict)
    for folder in path.iterdir() if path.is_dir() else ():
        name = re.fullmatch(r"(.+)-(0|[1-9]\d*)", folder.name)
        if name and not folder.name.startswith(STAGING_PREFIX) and folder.is_dir():
            found[name[1]][int(name[2])] = folder
    return found


def manifest_path(path: Path, topic: str) -> Path:
    return path / (topic + MANIFEST_SUFFIX)


def check_absent(path: Path, topic: str) -> None:
    """Raise FileExistsError if `path` has the topic."""
    if topic_folders(path).get(topic) or manifest_path(path, topic).exists():
        raise FileExistsError(
            f"{path} already has topic {topic!r}, and offsets start at 0; write to another path, give "
            "another option 'topic', or replace it with mode('overwrite')"
        )


class StagedWrite:
    """One job's write of one topic. The driver creates it and sends it to the tasks; all methods but `stage`
    are for the driver. A restarted job creates another.
    """

    def __init__(self, path: Path, topic: str, *, replace: bool) -> None:
        if not replace:
            check_absent(path, topic)
        self.path = path
        self.topic = topic
        self.replace = replace
        self.staging = path / f"{STAGING_PREFIX}{uuid4().hex}"
        self.staging.mkdir(parents=True)

    def stage(self, task: int, attempt: int) -> Path:
        """Return the folder for one attempt of one task: no two attempts write the same files."""
        folder = self.staging / f"task-{task}-attempt-{attempt}"
        folder.mkdir()
        return folder

    def commit(self, results: Iterable[tuple[Path, Mapping[int, PartitionFiles]]]) -> None:
        """Move the partitions that each task staged into place, or change nothing.

        Raise ValueError if a Kafka partition came from two tasks, FileExistsError if the topic has appeared
        meanwhile, OSError if a rename fails.
        """
        sources: dict[int, tuple[Path, PartitionFiles]] = {}
        for folder, partitions in results:
            for partition, files in partitions.items():
                if partition in sources:
                    raise ValueError(
                        f"Kafka partition {partition} of topic {self.topic!r} came from two tasks, which "
                        "both gave offsets from 0; bring each into one task with "
                        "frame.repartitionById(<partitions>, 'partition')"
                    )
                sources[partition] = folder / f"{self.topic}-{partition}", files
        if not self.replace:
            check_absent(self.path, self.topic)
        manifest = self.staging / "manifest"
        self._write_manifest(manifest, {partition: files for partition, (_, files) in sources.items()})
        replaced = self.staging / "replaced"
        replaced.mkdir()
        old = [manifest_path(self.path, self.topic), *topic_folders(self.path).get(self.topic, {}).values()]
        moves = [(file, replaced / file.name) for file in old if file.exists()]
        moves += [(folder, self.path / folder.name) for folder, _ in sources.values()]
        moves += [(manifest, manifest_path(self.path, self.topic))]
        with ExitStack() as undo:
            for source, target in moves:
                source.rename(target)
                undo.callback(target.rename, source)
            undo.pop_all()
        sync_directory(self.path)
        self.discard()

    def discard(self) -> None:
        """Remove everything that the tasks staged; a second call does nothing."""
        shutil.rmtree(self.staging, ignore_errors=True)

    def _write_manifest(self, file: Path, partitions: Mapping[int, PartitionFiles]) -> None:
        content = {
            "format": FORMAT,
            "version": VERSION,
            "topic": self.topic,
            "partitions": {str(number): asdict(partitions[number]) for number in sorted(partitions)},
        }
        with file.open("w") as out:
            json.dump(content, out, indent=1)
            out.flush()
            os.fsync(out.fileno())


def segments(path: Path, topic: str | None) -> list[StoredSegment]:
    """Return the .log files of one topic or of all, in the order of topic, partition and offset.

    A topic's manifest decides; without one (SegmentWriter's files, a broker's) all .log files are read.

    Raises
    ------
    FileNotFoundError
        There is no such folder, no topic in it, or a file of a manifest is missing.
    ValueError
        A manifest is invalid, the size of a file differs from it, or a write is unfinished.
    """
    folders = topic_folders(path)
    topics = {manifest.stem for manifest in path.glob("*" + MANIFEST_SUFFIX)} | set(folders)
    if topic is not None:
        topics &= {topic}
    if not topics:
        wanted = "log segments" if topic is None else f"log segments of topic {topic!r}"
        raise FileNotFoundError(f"{path} has no {wanted}; name the folder of the <topic>-<partition> folders")
    found = []
    for name in sorted(topics):
        manifest = manifest_path(path, name)
        found += _listed(path, name, manifest) if manifest.exists() else _unlisted(path, name, folders[name])
    return found


def _listed(path: Path, topic: str, manifest: Path) -> list[StoredSegment]:
    try:
        content = json.loads(manifest.read_text())
        if (content["format"], content["version"], content["topic"]) != (FORMAT, VERSION, topic):
            raise ValueError(f"not of {FORMAT} version {VERSION} and topic {topic!r}")
        partitions = {int(number): PartitionFiles(**files) for number, files in content["partitions"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{manifest} is not a manifest of {FORMAT}: {error}") from error
    found = []
    for partition, files in partitions.items():
        for name, size in files.segments.items():
            log_path = path / f"{topic}-{partition}" / name
            if log_path.stat().st_size != size:
                raise ValueError(f"{log_path} has {log_path.stat().st_size} bytes, its manifest has {size}")
            found.append(StoredSegment(topic, partition, str(log_path)))
    return found


def _unlisted(path: Path, topic: str, folders: Mapping[int, Path]) -> list[StoredSegment]:
    if staging := next(path.glob(STAGING_PREFIX + "*"), None):
        raise ValueError(
            f"topic {topic!r} has no manifest, but {staging} exists: a write is running or was cut "
            "short; if none is running, remove that folder and the topic's"
        )
    return [
        StoredSegment(topic, partition, str(log_path))
        for partition in sorted(folders)
        for log_path in sorted(folders[partition].glob("*.log"))
    ]
