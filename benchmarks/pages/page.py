"""Pages of benchmarks: one page with a part for each group, or a page for each group with a summary.

Measuring a group replaces its part or page only, so the pages hold the results of several runs and machines.
Each result says when, where and with which versions it was measured.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.clients.contestants import kafka_jars
from benchmarks.pages.harness import Question, report
from benchmarks.pages.plots import draw, name_of

PLOTS = "plots"
# A part stands between comments that Markdown does not show.
PART = re.compile(r"<!-- group: (.+?) -->\n(.*?)<!-- end of \1 -->\n", re.DOTALL)
SECTION = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
# The table of contenders, the first of a section.
TABLE = re.compile(r"^\| \| median, (.+?) \|.*?\n\n", re.DOTALL | re.MULTILINE)
MEDIAN = re.compile(r"^\| (.+?) \| ([\d,.]+) \| [\d,.]+ \| [\d,.]+ \|", re.MULTILINE)
DATE = re.compile(r"^\*(\d{4}-\d\d-\d\d)", re.MULTILINE)
PACKAGES = (
    "kbatch", "confluent-kafka", "aiokafka", "kafka-python", "kio", "lz4", "zstandard", "cramjam", "isal",
    "pyarrow", "pyspark", "crc32c", "google-crc32c", "fastavro", "protobuf", "jsonschema-rs", "msgspec",
)  # fmt: skip


class Page:
    """One page on disk; `put` replaces the part of one group."""

    def __init__(self, path: Path, head: str, order: Iterable[str]) -> None:
        self.path = path
        self._head = head
        self._order = list(order)

    def put(self, group: str, stamp: str, questions: Sequence[Question]) -> str:
        """Write the part, with plots if matplotlib is installed, and return its text."""
        return self.put_text(group, _text(stamp, questions, self.path.parent / PLOTS, PLOTS))

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


class Figure(NamedTuple):
    """A figure of the summary: rows of the table in the section `title` of a group's page."""

    group: str
    title: str
    text: str
    ours: str
    peers: tuple[str, ...]


class GroupPages:
    """A page for each group, in the folder beside the summary that is named like it; `put` writes one of them
    and the summary.

    Parameters
    ----------
    summary : Path
    head, foot : str
        Its Markdown before and after the tables of figures and groups.
    groups : Mapping[str, str]
        The question that each group answers, in the order of the summary.
    figures : Sequence[Figure]
    """

    def __init__(
        self, summary: Path, head: str, foot: str, groups: Mapping[str, str], figures: Sequence[Figure]
    ) -> None:
        self._summary = summary
        self._folder = summary.with_suffix("")
        self._head = head
        self._foot = foot
        self._groups = groups
        self._figures = figures

    def put(self, group: str, stamp: str, questions: Sequence[Question]) -> str:
        """Write the group's page, with plots if matplotlib is installed, and return its text."""
        plots = self._summary.parent / PLOTS
        return self.put_text(group, _text(stamp, questions, plots, f"../{PLOTS}"))

    def put_text(self, group: str, text: str) -> str:
        """Write the group's page from the text of its sections, and the summary."""
        self._folder.mkdir(parents=True, exist_ok=True)
        found = ((each.text, _answer(each, group, text)) for each in self._figures)
        answer = [f"- {what}: {figure}" for what, figure in found if figure]
        head = [f"# Benchmark: {group}", self._groups[group], *(["\n".join(answer)] if answer else [])]
        head.append(f"[{self._summary.name}](../{self._summary.name}) has the settings.")
        (self._folder / f"{group}.md").write_text("\n\n".join([*head, text]))
        self._write_summary()
        return text

    def _write_summary(self) -> None:
        pages = {group: self._folder / f"{group}.md" for group in self._groups}
        texts = {group: page.read_text() for group, page in pages.items() if page.exists()}
        lines = [self._head, "| figure | measured |", "|---|---|"]
        for each in self._figures:
            if found := _answer(each, each.group, texts.get(each.group, "")):
                lines.append(f"| [{each.text}]({self._folder.name}/{each.group}.md) | {found} |")
        lines += ["", "## Groups", "", "| group | question | measured |", "|---|---|---|"]
        for group, text in texts.items():
            date = DATE.search(text)
            link = f"[{group}]({self._folder.name}/{group}.md)"
            lines.append(f"| {link} | {self._groups[group]} | {date[1] if date else ''} |")
        self._summary.write_text("\n".join([*lines, "", self._foot]))


def _text(stamp: str, questions: Sequence[Question], folder: Path, link: str) -> str:
    """Return a group's stamp and sections; draw their plots into `folder`, which Markdown calls `link`."""
    sections = []
    for question in questions:
        section = report(question)
        try:
            draw(question, folder / name_of(question))
        except ImportError:
            pass  # the tables have all figures
        else:
            section += f"\n![{question.title}]({link}/{name_of(question)})\n"
        sections.append(section)
    return "\n".join([f"*{stamp}*\n", *sections])


def _answer(figure: Figure, group: str, text: str) -> str:
    """Return the figure and those of peers as words, or nothing if the page does not have it."""
    sections = dict(SECTION.findall(text)) if figure.group == group else {}
    table = TABLE.search(sections.get(figure.title, ""))
    medians = dict(MEDIAN.findall(table[0])) if table else {}
    if table is None or figure.ours not in medians:
        return ""
    peers = "; ".join(f"{name} {medians[name]}" for name in figure.peers if name in medians)
    ours = f"**{medians[figure.ours]}** {table[1]}"
    return f"{ours}; {peers}" if peers else ours


def stamp(rounds: str, *, commit: str = "") -> str:
    """Return date, machine and versions, a sentence each."""
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
