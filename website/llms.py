"""llms.txt: the pages of the site for language models (llmstxt.org), as a list and as one text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

HEAD = """\
# kbatch

> A Kafka client for Python with a native core: producers, consumers, groups, transactions and
> administration, for threads and asyncio; whole Arrow tables and Spark DataFrames to topics and back; a Kafka
> cluster inside the process for tests. Install the distribution kbatch-kafka, and import kbatch.

Settings are Kafka's: `Producer({"bootstrap.servers": "host:9092"})`, or with underscores as keywords. Time
limits of calls are seconds. Callbacks run on a thread of kbatch, so nothing has to be polled. Values are
bytes unless a format of kbatch.formats is set.
"""
# Pages about kbatch itself are for its developers.
OPTIONAL = re.compile(r"benchmarks/|behaviours|simulation|soak|transaction_states|costs")


def index(pages: Iterable[Page]) -> str:
    """Return the list of pages, with what each is about."""
    rows = {True: "", False: ""}
    for page in pages:
        is_optional = OPTIONAL.match(page.file.src_uri) is not None
        rows[is_optional] += f"- [{page.title}]({page.canonical_url}): {_about(page)}\n"
    return f"{HEAD}\n## Pages\n\n{rows[False]}\n## Optional\n\n{rows[True]}"


def full(pages: Iterable[Page]) -> str:
    """Return the text of all pages for users."""
    texts = (page.markdown or "" for page in pages if not OPTIONAL.match(page.file.src_uri))
    return "\n\n".join([HEAD, *texts])


def _about(page: Page) -> str:
    """Return the first paragraph, as one line without links."""
    text = re.sub(r"\A#[^\n]*\n+", "", page.markdown or "").partition("\n\n")[0]
    line = " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).split())
    return re.split(r"(?<=[.?])\s(?=[A-Z])", line)[0] if len(line) > 200 else line
