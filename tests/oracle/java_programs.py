"""The programs of tests/java, compiled once into a jar in the cache, and how to start them fast.

A class-data archive (JEP 350) of what a program loaded is kept beside the jar: it halves the start of a JVM.
The first run that ends well writes it; a JVM that cannot use an archive runs without.
"""

import hashlib
import os
import platform
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.oracle.java import KAFKA_VERSION, SOURCES, JavaMissingError, jars

# What is compiled; with an older Kafka only its broker is of interest.
PROGRAMS = ("RealKafka", "Clients")
OLDER_PROGRAMS = ("RealKafka",)
# The tests' JVMs live for seconds: the second compiler would only take the processor from the tests.
# Their remarks about archives go nowhere, for stdout is the program's.
JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable", "-Xlog:all=error:stderr")


@cache
def _folder(kafka_version: str) -> Path:
    """Return the folder of programs.jar, made where it is missing; its name changes with the sources and the
    JDK.
    """
    programs = PROGRAMS if kafka_version == KAFKA_VERSION else OLDER_PROGRAMS
    sources = [SOURCES / f"{program}.java" for program in programs]
    banner = subprocess.run(["java", "-version"], capture_output=True, check=False).stderr
    contents = [banner, platform.machine().encode(), *(source.read_bytes() for source in sources)]
    contents += sorted(jar.name.encode() for jar in jars(kafka_version).iterdir())
    folder = jars(kafka_version).parent / f"programs-{hashlib.sha256(b'|'.join(contents)).hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made, classes = Path(scratch) / "made", Path(scratch) / "classes"
        made.mkdir()
        _run(["javac", "-cp", f"{jars(kafka_version)}/*", "-d", str(classes), *map(str, sources)])
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
    """One run of a program: `command` starts it; `ended` is to be called after its end."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        archive: str,
        java_options: Sequence[str] = (),
        kafka_version: str = KAFKA_VERSION,
    ) -> None:
        folder = _folder(kafka_version)
        self._archive = folder / f"{archive}.jsa"
        self._recording = self._archive.with_suffix(f".{os.getpid()}")
        self.recording = not self._archive.exists()
        share = ("SharedArchiveFile", self._archive)
        if self.recording:
            share = ("ArchiveClassesAtExit", self._recording)
        self.command = ["java", *JVM_OPTIONS, "-XX:{}={}".format(*share)]
        class_path = f"{folder / 'programs.jar'}:{jars(kafka_version)}/*"
        self.command += [*java_options, "-cp", class_path, name, *arguments]

    def ended(self, *, properly: bool) -> None:
        """Put the archive in place, and remove what a killed JVM left of it."""
        if properly and self._recording.exists():
            self._recording.replace(self._archive)
        self._recording.unlink(missing_ok=True)
