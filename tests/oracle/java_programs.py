"""Kafka's jars, and the programs of tests/java, compiled once into a jar in the cache.

Jars come from Maven once, into `$KBATCH_CACHE` (or ~/.cache/kbatch). A class-data archive (JEP 350) of what a
program loaded may be kept beside the jar: it halves the start of a JVM. Of several processes one writes it,
with its first run that ends well. A JVM that cannot use an archive runs without.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import IO

SOURCES = Path(__file__).parents[1] / "java"
# The version of the real Kafka, unless a test needs an older one.
KAFKA_VERSION = "4.3.1"
SPARK_KAFKA_NAME = "spark-kafka-avro-4.2.0"
MINIMAL_JAVA = 17
STDERR_TAIL_BYTES = 4000
# What is compiled; with an older Kafka only its broker is of interest.
PROGRAMS = (
    "AdminJudge",
    "Assignors",
    "Clients",
    "ErrorTable",
    "MessageJudge",
    "Oracle",
    "ProducerFacts",
    "RealKafka",
    "TelemetryReceiver",
)
OLDER_PROGRAMS = ("RealKafka",)
# JVMs of tests are short-lived: the second compiler would only take the processor from the tests.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# Remarks about archives go nowhere, for stdout is the program's.
JVM_OPTIONS = (*SHORT_LIVED, "-Xlog:disable", "-Xlog:all=error:stderr")


class JavaMissingError(RuntimeError):
    """No JDK or no Maven, or the jars cannot be had; the text says which."""


# The jars


@cache
def jars(version: str = KAFKA_VERSION) -> Path:
    """Return the folder of Kafka's jars."""
    return fetched(f"kafka-{version}", lambda folder: _fetch_jars(folder, "pom.xml", version))


@cache
def spark_kafka_jars() -> Path:
    """Return the folder of the jars of Spark's own Kafka sink and Avro functions."""
    return fetched(SPARK_KAFKA_NAME, lambda folder: _fetch_jars(folder, "spark-kafka.xml", KAFKA_VERSION))


def fetched(name: str, fetch: Callable[[Path], object]) -> Path:
    """Return a folder of the cache, which `fetch` fills if it is missing. Of two processes one wins."""
    _check_java()
    cache_folder = Path(os.environ.get("KBATCH_CACHE") or Path.home() / ".cache" / "kbatch")
    folder = cache_folder / name
    if folder.is_dir():
        return folder
    cache_folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder) as partial:
        made = Path(partial) / name
        fetch(made)
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    return folder


def _check_java() -> None:
    # Programs are compiled here: a runtime without javac is not enough.
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            raise JavaMissingError(f"no `{tool}` on PATH: install a JDK {MINIMAL_JAVA} or newer")
    version = re.search(r'version "(?:1\.)?(\d+)', _banner())
    if version is None or int(version[1]) < MINIMAL_JAVA:
        raise JavaMissingError(f"a JDK {MINIMAL_JAVA} or newer is needed; `java` says: {_banner().strip()}")


@cache
def _banner() -> str:
    """Return what `java -version` prints, without the options of the environment, which it would name."""
    environment = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
    command = ["java", "-version"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stderr


def _fetch_jars(folder: Path, project: str, kafka_version: str) -> None:
    arguments = ["-f", str(SOURCES / project), "dependency:copy-dependencies"]
    run_maven(*arguments, f"-DoutputDirectory={folder}", f"-Dkafka.version={kafka_version}")


def run_maven(*arguments: str) -> None:
    """Run Maven. Raise JavaMissingError if it is missing, or fails."""
    maven = shutil.which("mvn")
    if maven is None:
        raise JavaMissingError("no `mvn` on PATH: install Maven, it fetches jars")
    done = subprocess.run(
        [maven, "-q", "-B", *arguments],
        env={"MAVEN_OPTS": " ".join(SHORT_LIVED), **os.environ},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise JavaMissingError(f"Maven could not fetch jars: {done.stdout[-STDERR_TAIL_BYTES:]}")


# The programs


@cache
def _folder(kafka_version: str) -> Path:
    """Return the folder of programs.jar, made where it is missing; its name changes with the sources and the
    JDK.
    """
    programs = PROGRAMS if kafka_version == KAFKA_VERSION else OLDER_PROGRAMS
    sources = [SOURCES / f"{program}.java" for program in programs]
    contents = [_banner().encode(), platform.machine().encode(), *(source.read_bytes() for source in sources)]
    contents += sorted(jar.name.encode() for jar in jars(kafka_version).iterdir())
    folder = jars(kafka_version).parent / f"programs-{hashlib.sha256(b'|'.join(contents)).hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made, classes = Path(scratch) / "made", Path(scratch) / "classes"
        made.mkdir()
        options = [f"-J{option}" for option in SHORT_LIVED]
        _run(["javac", *options, "-cp", f"{jars(kafka_version)}/*", "-d", str(classes), *map(str, sources)])
        _run(["jar", "--create", "--file", str(made / "programs.jar"), "-C", str(classes), "."])
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    return folder


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise JavaMissingError(f"no `{command[0]}` on PATH: install a JDK") from error
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr}")


class Program:
    """One run of a program: `command` starts it; with an `archive`, `ended` is to be called after its end.

    `records` lets it write a missing archive.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str] = (),
        *,
        archive: str | None = None,
        records: bool = True,
        java_options: Sequence[str] = (),
        kafka_version: str = KAFKA_VERSION,
    ) -> None:
        folder = _folder(kafka_version)
        self.command = ["java", *JVM_OPTIONS]
        self._archive = folder / f"{archive}.jsa"
        self._recording = self._archive.with_suffix(".recording")
        self._lock: IO[str] | None = None
        is_there = self._archive.exists()
        if archive is not None and records and not is_there:
            self._lock = _locked(self._archive.with_suffix(".lock"))
        if is_there:
            self.command.append(f"-XX:SharedArchiveFile={self._archive}")
        elif self.recording:
            self.command.append(f"-XX:ArchiveClassesAtExit={self._recording}")
        class_path = f"{folder / 'programs.jar'}:{jars(kafka_version)}/*"
        self.command += [*java_options, "-cp", class_path, name, *arguments]

    @property
    def recording(self) -> bool:
        """True if this run writes the archive, when it ends."""
        return self._lock is not None

    def ended(self, *, properly: bool) -> None:
        """Put the archive in place, and remove what a killed JVM left of it."""
        if self._lock is None:
            return
        if properly and self._recording.exists():
            self._recording.replace(self._archive)
        self._recording.unlink(missing_ok=True)
        self._lock.close()
        self._lock = None


def _locked(path: Path) -> IO[str] | None:
    """Return a file that this process has locked until it is closed; None if another process has."""
    file = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file
