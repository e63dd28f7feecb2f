"""docs/benchmarks.md and its like: a part for each group, which is replaced when that group was measured.

The parts stand between comments that Markdown does not show, so that a page holds what several runs, and
several machines, have measured; each part says when, where and of what.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from kbatch.bench.contestants import kafka_jars
from kbatch.bench.harness import Question, report
from kbatch.bench.plots import draw, name_of

PLOTS = "plots"
PART = re.compile(r"<!-- group: (.+?) -->\n(.*?)<!-- end of \1 -->\n", re.DOTALL)
PACKAGES = (
    "kbatch", "confluent-kafka", "aiokafka", "kafka-python", "kio", "lz4", "zstandard", "cramjam", "isal",
    "pyarrow", "pyspark", "crc32c", "google-crc32c",
)  # fmt: skip


class Page:
    """A page on disk; `put` changes one part of it at once, and leaves the others as they are."""

    def __init__(self, path: Path, head: str, order: Iterable[str]) -> None:
        self.path = path
        self._head = head
        self._order = list(order)

    def put(self, group: str, stamp: str, questions: Sequence[Question]) -> str:
        """The part as it now stands, its pictures drawn where matplotlib is there."""
        sections = []
        for question in questions:
            section = report(question)
            try:
                draw(question, self.path.parent / PLOTS / name_of(question))
            except ImportError:
                pass  # the tables say as much
            else:
                section += f"\n![{question.title}]({PLOTS}/{name_of(question)})\n"
            sections.append(section)
        return self.put_text(group, "\n".join([f"*{stamp}*\n", *sections]))

    def put_text(self, group: str, text: str) -> str:
        parts = dict(PART.findall(self.path.read_text())) if self.path.exists() else {}
        parts[group] = text
        order = [*self._order, *sorted(set(parts) - set(self._order))]
        written = [
            f"<!-- group: {name} -->\n{parts[name]}<!-- end of {name} -->\n"
            for name in order
            if name in parts
        ]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("\n".join([self._head, *written]))
        return text


def stamp(rounds: str, *, commit: str = "") -> str:
    """When, on what machine, of which versions, as a sentence each."""
    load = f", load average {os.getloadavg()[0]:.1f} at its beginning" if hasattr(os, "getloadavg") else ""
    return (
        f"{datetime.date.today()}{commit and f', commit {commit}'}{load}; {rounds}. {_cpu()}, "
        f"{os.cpu_count()} cores, {_memory_gib()}{platform.system()} {platform.release()}, "
        f"{platform.python_implementation()} {platform.python_version()}. {_versions()}."
    )


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _memory_gib() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return ""
    return f"{size / 2**30:.0f} GiB, "


def _versions() -> str:
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    jars = kafka_jars()
    if jars is not None and shutil.which("java"):
        found += sorted(path.stem.replace("s-", "s ") for path in jars.glob("kafka-clients-*.jar"))
        banner = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
        version = re.search(r'version "(.+?)"', banner)
        found.append(f"Java {version[1] if version else '?'}")
    return ", ".join(found)
