"""The pages for users name only existing metrics, configuration keys, errors and pages."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kbatch import errors
from kbatch.config import CONSUMER_KEYS, KEYS
from kbatch.metrics import METRICS
from kbatch.testing import Broker
from tests import ROOT
from tests.support.sending import Sending

DOCS = ROOT / "docs"
PAGES = ("asyncio.md", "delivery.md", "transactions.md", "troubleshooting.md")
TOPIC_KEYS = {"max.message.bytes", "min.insync.replicas"}
OTHER_KEYS = {"advertised.listeners", "transaction.version"}  # of brokers and clusters
# What the pages for maintainers speak of.
FOLDERS = ("kbatch", "src_c", "tests", "benchmarks", "release")
SOURCES = ("setup.py", "pyproject.toml", "Makefile", "mkdocs.yml")
EXAMPLES = {"FIND_COORDINATOR_TOY", "KB_CODEC_BROTLI", "kbatch_toy_ms"}  # of what is to be added
MADE = {".venv/bin/python", "build/site"}  # by make
ATTRIBUTES = {"error.possibly_persisted", "metadata.offset"}


def quoted(page: str) -> list[str]:
    text = re.sub(r"^```.*?^```", "", (DOCS / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`]+)`", text)


@cache
def words_of_sources() -> set[str]:
    """Return the words of all sources but this one, and the names of their files."""
    folders = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())
    found: set[str] = set()
    for path in {*map(ROOT.joinpath, SOURCES), *folders} - {Path(__file__)}:
        if path.suffix not in (".pyc", ".so"):
            found.update(re.findall(r"\w+", path.read_text(errors="ignore")), path.name.split("."))
    return found


def exists(path: str) -> bool:
    """True if the tree has such a file, module or folder; pages leave `kbatch/` and endings out."""
    parents = (ROOT, ROOT / "kbatch", ROOT / "tests", ROOT / "kbatch" / "_native")
    return any(
        list(parent.glob(f"{path.rstrip('/')}{end}")) for parent in parents for end in ("", ".py", ".pyx")
    )


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_a_page_for_maintainers_names_what_there_is(page: str) -> None:
    """Names with an underscore, and paths, which a reader would look for."""
    text = re.sub(r"^ *```.*?^ *```", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    names = [word for quote in re.findall(r"`([^`]+)`", text) for word in quote.split()]
    named = {name for name in names if re.fullmatch(r"\w+(\.\w+)*(\(.*\))?", name) and "_" in name}
    paths = {name for name in names if re.fullmatch(r"[\w.*]+(/[\w.*]+)+/?", name)}
    assert named and paths
    words = {word for name in named for word in name.partition("(")[0].split(".")}
    assert sorted(words - words_of_sources() - EXAMPLES) == []
    assert sorted(path for path in paths - MADE if not exists(path)) == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_what_there_is(page: str) -> None:
    names = quoted(page)
    metrics = {name for name in names if re.fullmatch(r"[a-z]+(-[a-z]+)+", name)}
    keys = {name.partition("=")[0] for name in names if re.fullmatch(r"[a-z]+(\.[a-z]+)+(=\w+)?", name)}
    exceptions = {name.partition("(")[0] for name in names if re.fullmatch(r"\w+Error(\(.*\))?", name)}
    assert metrics and keys and exceptions
    assert metrics <= {metric.name for metric in METRICS}
    assert keys - ATTRIBUTES <= {*KEYS, *CONSUMER_KEYS, *TOPIC_KEYS, *OTHER_KEYS}
    assert exceptions <= set(errors.__all__)


def test_troubleshooting_quotes_what_an_expired_batch_says() -> None:
    """The page has it beside Java's texts, by which users search."""
    s = Sending(delivery_timeout_ms=2000, request_timeout_ms=1000, linger_ms=0).warmed()
    s.cut_off()
    s.put("a")
    s.advance(2000)
    said = str(s.error("a")).partition(": ")[2]
    for figure, letter in (("1 records", "N records"), ("2000 ms", "M ms"), ("=2000", "=...")):
        said = said.replace(figure, letter)
    said = said.partition("failed: ")[0] + "failed: ..."
    assert said in quoted("troubleshooting.md")


def test_troubleshooting_quotes_what_the_log_says() -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    table = page.partition("| the log says |")[2].partition("\n\n")[0]
    texts = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    sources = [(ROOT / f"kbatch/core/client/{name}.py").read_text() for name in ("cluster", "connections")]
    assert len(texts) > 5
    for text in texts:
        assert any(text.partition("...")[0] in source for source in sources), text


@pytest.mark.parametrize("page", [*PAGES, "spark.md"])
def test_the_links_of_a_page_lead_somewhere(page: str) -> None:
    for target, heading in re.findall(r"\]\(([\w.]+)(?:#([\w-]+))?\)", (DOCS / page).read_text()):
        headings = re.findall(r"^#+ (.+)$", (DOCS / target).read_text(), re.MULTILINE)
        assert not heading or heading in {name.lower().replace(" ", "-") for name in headings}


def test_the_example_of_traces_runs_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    (code,) = re.findall(
        r"^```python\n(.*?Tracing.*?)^```", (DOCS / "troubleshooting.md").read_text(), re.M | re.S
    )
    with Broker({"orders": 1}) as broker:
        exec(code.replace("localhost:9092", broker.bootstrap_servers), {})
    sent, polled, processed = exporter.get_finished_spans()
    assert processed.parent is not None and processed.parent.span_id == sent.context.span_id
    assert processed.attributes is not None and processed.attributes["price"] == 6
    assert [link.context.span_id for link in polled.links] == [sent.context.span_id]


def test_questions_quote_what_errors_say() -> None:
    """The texts are parts of literals in the sources, which may go on in the next line."""
    table = (DOCS / "faq.md").read_text().partition("## Texts of kbatch")[2].partition("\n## ")[0]
    texts = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    files = [each for kind in ("*.py", "*.pyx") for each in (ROOT / "kbatch").rglob(kind)]
    sources = [re.sub(r'"\n\s*f?"|\{[^{}]*\}', "", each.read_text()) for each in files]
    assert len(texts) > 10
    assert [text for text in texts if not any(text in source for source in sources)] == []


def test_links_of_the_readme_work_on_the_package_index() -> None:
    """They are absolute, and lead to what the repository has."""
    text = (ROOT / "README.md").read_text()
    assert re.findall(r"\]\(", text) == []
    labels = dict(re.findall(r"^\[([\w-]+)\]: (\S+)$", text, re.MULTILINE))
    used = re.findall(r"\]\[([\w-]+)\]", text)
    assert set(used) <= set(labels)
    links = list(labels.values())
    repository = "https://github.com/kbatch/kbatch/blob/main/"
    assert len(links) > 20 and [link for link in links if not link.startswith("https://")] == []
    missing = [link for link in links if not (ROOT / link.removeprefix(repository)).is_file()]
    assert missing == []
