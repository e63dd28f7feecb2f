"""Staging, commit and manifests of a folder of segments, without Spark."""

import json
from pathlib import Path

import pytest

from kbatch.codec.segments import SegmentWriter
from kbatch.spark.segment_store import PartitionFiles, StagedWrite, StoredSegment, local_path, segments
from tests.oracle import plain

BATCH = plain.encode([(b"k", b"v", (), 0)])


def staged(
    write: StagedWrite, task: int, attempt: int, *partitions: int
) -> tuple[Path, dict[int, PartitionFiles]]:
    """Return what a task would write and report: one batch in each partition."""
    folder = write.stage(task, attempt)
    files = {}
    for partition in partitions:
        with SegmentWriter(folder, write.topic, partition) as writer:
            writer.append(BATCH)
        files[partition] = PartitionFiles(1, 1, {log.name: log.stat().st_size for log in writer.log_paths})
    return folder, files


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


def partitions_of(found: list[StoredSegment]) -> list[int]:
    return [segment.partition for segment in found]


def test_commit_puts_partitions_and_manifest_into_place(path: Path) -> None:
    write = StagedWrite(path, "t", replace=False)
    results = [staged(write, 0, 0, 0, 10), staged(write, 1, 3, 2), (write.stage(2, 4), {})]
    staged(write, 1, 1, 2)  # an attempt that failed
    write.commit(results)
    assert names(path) == {"t-0", "t-2", "t-10", "t.json"}
    assert partitions_of(segments(path, None)) == [0, 2, 10]
    assert json.loads((path / "t.json").read_text())["partitions"]["10"]["next_offset"] == 1


def test_nothing_is_seen_before_the_commit(path: Path) -> None:
    write = StagedWrite(path, "t", replace=False)
    staged(write, 0, 0, 0)
    with pytest.raises(FileNotFoundError, match="no log segments"):
        segments(path, None)
    write.discard()
    write.discard()
    assert names(path) == set()


def test_partition_of_two_tasks_is_named_and_changes_nothing(path: Path) -> None:
    write = StagedWrite(path, "t", replace=False)
    results = [staged(write, 0, 0, 0, 7), staged(write, 1, 1, 7)]
    with pytest.raises(
        ValueError, match=r"Kafka partition 7 of topic 't' came from two tasks.*repartitionById"
    ):
        write.commit(results)
    assert names(path) == {write.staging.name}


def test_topic_that_is_there_is_refused(path: Path) -> None:
    write, late = StagedWrite(path, "t", replace=False), StagedWrite(path, "t", replace=False)
    write.commit([staged(write, 0, 0, 0)])
    with pytest.raises(FileExistsError, match=r"already has topic 't'.*mode\('overwrite'\)"):
        StagedWrite(path, "t", replace=False)
    with pytest.raises(FileExistsError, match="already has topic 't'"):
        late.commit([staged(late, 0, 0, 1)])
    assert partitions_of(segments(path, "t")) == [0]


def test_replacing_leaves_other_topics_alone(path: Path) -> None:
    for topic in ("t", "t-1", "u"):
        write = StagedWrite(path, topic, replace=False)
        write.commit([staged(write, 0, 0, 0, 1)])
    write = StagedWrite(path, "t", replace=True)
    write.commit([staged(write, 0, 0, 5)])
    assert names(path) == {"t-5", "t.json", "t-1-0", "t-1-1", "t-1.json", "u-0", "u-1", "u.json"}
    assert partitions_of(segments(path, "t")) == [5]
    assert partitions_of(segments(path, "t-1")) == [0, 1]


@pytest.mark.parametrize("failing", range(5))
def test_failed_rename_is_undone(path: Path, failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    write = StagedWrite(path, "t", replace=False)
    write.commit([staged(write, 0, 0, 0, 1)])
    before = segments(path, None)
    write = StagedWrite(path, "t", replace=True)
    results = [staged(write, 0, 0, 1, 2)]
    real, calls = Path.rename, 0

    def rename(source: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == failing + 1:
            raise OSError("the disk is gone")
        return real(source, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(OSError, match="the disk is gone"):
        write.commit(results)
    write.discard()
    assert segments(path, None) == before
    assert names(path) == {"t-0", "t-1", "t.json"}


def test_unfinished_commit_is_reported(path: Path) -> None:
    write = StagedWrite(path, "t", replace=False)
    folder, _ = staged(write, 0, 0, 0)
    (folder / "t-0").rename(path / "t-0")
    with pytest.raises(ValueError, match=r"topic 't' has no manifest, but .* exists"):
        segments(path, None)


def test_manifest_rules(path: Path) -> None:
    write = StagedWrite(path, "t", replace=False)
    write.commit([staged(write, 0, 0, 0)])
    log = path / "t-0" / f"{0:020d}.log"
    (path / "t-0" / f"{1:020d}.log").touch()
    assert [Path(segment.log_path) for segment in segments(path, None)] == [log]
    log.write_bytes(log.read_bytes() + b"x")
    with pytest.raises(ValueError, match="its manifest has"):
        segments(path, None)
    log.unlink()
    with pytest.raises(FileNotFoundError):
        segments(path, None)
    for content in ("{", "[]", "{}", '{"format": "other", "version": 1, "topic": "t", "partitions": {}}'):
        (path / "t.json").write_text(content)
        with pytest.raises(ValueError, match=r"t\.json is not a manifest"):
            segments(path, None)


def test_folders_of_a_broker_need_no_manifest(tmp_path: Path) -> None:
    with SegmentWriter(tmp_path, "a", 1, segment_bytes=len(BATCH)) as writer:
        for _ in range(3):
            writer.append(BATCH)
    with SegmentWriter(tmp_path, "b-0", 0):
        pass
    (tmp_path / "meta.properties").touch()
    assert [Path(segment.log_path) for segment in segments(tmp_path, "a")] == writer.log_paths
    assert [(segment.topic, segment.partition) for segment in segments(tmp_path, "b-0")] == [("b-0", 0)]
    with pytest.raises(FileNotFoundError, match="no log segments of topic 'c'"):
        segments(tmp_path, "c")


@pytest.mark.parametrize("given", ["/a/b", "file:/a/b", "file:///a/b"])
def test_local_path(given: str) -> None:
    assert local_path(given) == Path("/a/b")


@pytest.mark.parametrize("given", ["s3://bucket/a", "hdfs:///a", "file://host/a"])
def test_path_elsewhere_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="option 'path'"):
        local_path(given)
