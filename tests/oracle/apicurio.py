"""Apicurio Registry as a judge: a real schema registry, on loopback and in memory.

It comes from Maven once, like Kafka's jars. It needs a newer Java than Kafka does, so any JDK of the machine
may run it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.oracle.java_programs import SHORT_LIVED, JavaMissingError, fetched, run_maven
from tests.support.patience import HANG_SECONDS

VERSION, MINIMAL_JAVA = "3.3.3", 21
ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
HOST = "127.0.0.1"
# Where it speaks Confluent's REST API.
PATH = "/apis/ccompat/v7"
JDKS = Path("/usr/lib/jvm")
_VERSION = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)
_LISTENING = re.compile(r"Listening on: http://[^:]+:(\d+)")


@cache
def program() -> tuple[Path, Path]:
    """Return a JVM that can run it, and its folder. Raise JavaMissingError if there is none."""
    homes = [Path(java).resolve().parents[1] for java in [shutil.which("java")] if java]
    for home in [*homes, *sorted(JDKS.glob("*"))]:
        release = home / "release"
        found = _VERSION.search(release.read_text()) if release.is_file() else None
        if found is not None and int(found[1]) >= MINIMAL_JAVA:
            return home / "bin" / "java", fetched(f"apicurio-{VERSION}", _fetch)
    raise JavaMissingError(f"Apicurio Registry {VERSION} needs Java {MINIMAL_JAVA} or newer")


def _fetch(folder: Path) -> None:
    packed = folder.parent / "packed"
    run_maven("dependency:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={packed}")
    (archive,) = packed.iterdir()
    with tarfile.open(archive) as contents:
        contents.extractall(folder, filter="data")


@contextmanager
def running() -> Iterator[str]:
    """Run one, and give its URL. Raise RuntimeError if it does not start."""
    java, folder = program()
    settings = {"QUARKUS_HTTP_HOST": HOST, "QUARKUS_HTTP_PORT": "0"}
    with subprocess.Popen(
        [java, *SHORT_LIVED, "-Xmx512m", "-jar", "quarkus-run.jar"],
        cwd=folder,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        late = threading.Timer(HANG_SECONDS, process.kill)
        late.start()
        try:
            said = []
            for line in process.stdout:
                said.append(line)
                if (found := _LISTENING.search(line)) is not None:
                    break
            else:
                raise RuntimeError(f"Apicurio Registry did not start: {''.join(said[-20:])}")
            late.cancel()
            output = threading.Thread(target=process.stdout.read)  # or it would stand still
            output.start()
            yield f"http://{HOST}:{found[1]}{PATH}"
        finally:
            late.cancel()
            process.kill()
        output.join()
