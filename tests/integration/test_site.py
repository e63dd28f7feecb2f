"""The site of the documentation: built strictly, its reference complete, searched by a browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote, urldefrag, urljoin
from urllib.request import Request, urlopen

import click
import pytest

import kbatch
from kbatch.cli.commands import kbatch as kbatch_command
from kbatch.cli.manual import commands_below, is_of_connection
from tests import ROOT
from tests.support.chromium import chromium
from tests.support.patience import until
from website import commands, docstrings, reference
from website.hooks import REPOSITORY

ADDRESS = "https://kbatch.github.io/kbatch/"
# Theirs are looked up in the site and in the tree, or are there once kbatch is published.
OURS = (ADDRESS, "https://github.com/kbatch/kbatch")
SHOTS = ROOT / "build" / "screenshots"
OPENED = (
    "",
    "quickstart/",
    "install/",
    "configuration/",
    "consumer/",
    "tables/",
    "spark/",
    "errors/",
    "reference/",
    "reference/kbatch/",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


class _Page(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.links += [value for name in ("href", "src") if (value := given.get(name))]
        self.anchors |= {value for name in ("id", "name") if (value := given.get(name))}


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Page]:
    return {page: _Page(page.read_text()) for page in site.rglob("*.html") if page.name != "404.html"}


def absolute(site: Path, pages: dict[Path, _Page]) -> Iterator[tuple[str, str]]:
    """Yield the address of each page with each of its links."""
    for path, page in pages.items():
        here = urljoin(ADDRESS, path.relative_to(site).as_posix().removesuffix("index.html"))
        yield from ((here, urljoin(here, link)) for link in page.links)


def is_missing(link: str, site: Path, pages: dict[Path, _Page]) -> bool:
    """True if a link leads to a page, an anchor or a file of the repository that there is not."""
    target, anchor = urldefrag(link)
    if target.startswith(f"{REPOSITORY}/"):
        return not (ROOT / target.removeprefix(f"{REPOSITORY}/")).exists()
    if not target.startswith(ADDRESS):
        return False
    name = unquote(target.removeprefix(ADDRESS))
    file = site / name / "index.html" if name.endswith("/") or not name else site / name
    is_there = file.is_file() and (not anchor or file not in pages or anchor in pages[file].anchors)
    return not is_there


@pytest.mark.slow
def test_every_link_within_site_and_repository_leads_somewhere(site: Path, pages: dict[Path, _Page]) -> None:
    """Also those of the theme and of generated pages, which mkdocs does not look at."""
    links = list(absolute(site, pages))
    assert len(pages) > 50 and any(link.startswith(f"{REPOSITORY}/") for _, link in links)
    assert not [f"{here}: {link}" for here, link in links if is_missing(link, site, pages)]


def status_of(link: str) -> int | None:
    """Return the status of an answer; None without one."""
    asked = Request(link, headers={"User-Agent": "kbatch's test of links"})
    try:
        with urlopen(asked, timeout=20) as answer:
            return int(answer.status)
    except HTTPError as refused:
        return refused.code
    except OSError:
        return None


@pytest.mark.slow
def test_links_to_other_sites_lead_somewhere(site: Path, pages: dict[Path, _Page]) -> None:
    """A server without an answer proves nothing; one that has no such page does."""
    elsewhere = {urldefrag(link)[0] for _, link in absolute(site, pages) if link.startswith("http")}
    found = {link: status_of(link) for link in elsewhere if not link.startswith(OURS)}
    assert found
    if not any(found.values()):
        pytest.skip("no other site answers: there is no network")
    assert not dead(found)


def dead(statuses: Mapping[str, int | None]) -> list[str]:
    """Return the links to pages that there are not."""
    return sorted(link for link, status in statuses.items() if status in (404, 410))


class _Answers(BaseHTTPRequestHandler):
    """A server whose pages answer with the status that is their name; /cut ends the connection instead."""

    def do_GET(self) -> None:
        if self.path == "/cut":
            self.close_connection = True
            return
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/404")
        else:
            self.send_response(int(self.path.removeprefix("/")))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def test_dead_links_are_known_by_their_answers() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_address[1]}"
        pages = ("200", "403", "404", "410", "500", "moved", "cut")
        found = {page: status_of(f"{root}/{page}") for page in pages}
        server.shutdown()
        server.server_close()
    assert found == {"200": 200, "403": 403, "404": 404, "410": 410, "500": 500, "moved": 404, "cut": None}
    assert status_of(root) is None  # it has ended
    assert dead(found) == ["404", "410", "moved"]


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link rel="stylesheet"|img)[^>]+(?:src|href)="(https?:[^"]+)', page.read_text()
        )
        assert loaded == [], page


def test_llms_txt_names_every_page_for_users(site: Path) -> None:
    listed = re.findall(r"\]\((https:[^)]+)\): (.+)", (site / "llms.txt").read_text())
    assert len(listed) > 30 and all(about for _, about in listed)
    for address, _ in listed:
        assert (site / address.removeprefix(ADDRESS) / "index.html").is_file(), address
    assert "def main" in (site / "llms-full.txt").read_text()


def test_the_reference_has_every_public_name() -> None:
    """A name without a text raises while the pages are made."""
    pages = reference.pages()
    (page,) = (text for path, text in pages.items() if path == "reference/kbatch.md")
    assert {f"## {name} {{ #kbatch.{name} }}" for name in kbatch.__all__} <= set(page.splitlines())
    for member in ("Producer.send_table", "Producer.flush", "AsyncConsumer.poll", "Record.value"):
        assert f"{{ #kbatch.{member} }}" in page, member
    assert "timestamp_ms: SupportsIndex | None = None," in page  # of a native module, from its stub
    assert "await flush(" in page and "\nflush(" in page  # on an event loop, and on a thread
    assert "`KafkaTimeoutError`" in page  # errors raised


def test_a_name_without_a_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kbatch.Polled, "forgotten", property(lambda polled: None), raising=False)
    with pytest.raises(reference.Undocumented, match=r"kbatch\.Polled\.forgotten"):
        reference.pages()


def test_every_option_of_every_command_is_on_a_page() -> None:
    page = commands.page()
    root = click.Context(kbatch_command, info_name="kbatch")
    found = list(commands_below(root))
    assert len(found) > 60
    for context in found:
        (section,) = re.findall(
            rf"^#+ {context.command_path} {{ #{commands.anchor(context)} }}$(.*?)(?=^#|\Z)",
            page,
            re.MULTILINE | re.DOTALL,
        )
        for parameter in context.command.params:
            if isinstance(parameter, click.Option) and not is_of_connection(parameter):
                assert all(name in section for name in parameter.opts), (context.command_path, parameter.name)
    assert "--bootstrap-controller" in page.partition("## Connection")[2].partition("\n## ")[0]


def test_a_command_without_a_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = kbatch_command.get_command(click.Context(kbatch_command), "topics")
    assert topics is not None
    monkeypatch.setattr(topics, "help", None)
    with pytest.raises(commands.Undocumented, match="kbatch topics has no text"):
        commands.page()


def test_docstrings_become_lists() -> None:
    made = docstrings.parsed(
        "Return a number.\n\n    number()\n\nParameters\n----------\na, b : int\n    Two of\n    them.\n\n"
        "Raises\n------\nTypeError, ValueError\n    They are unsuitable."
    )
    assert list(docstrings.markdown(made, str)) == [
        "Return a number.\n\n\n```python\nnumber()\n```\n",
        "**Parameters**",
        "- `a`, `b` : int<br>Two of them.",
        "**Raises**",
        "- `TypeError`, `ValueError`<br>They are unsuitable.",
    ]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None: ...


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_a_browser_opens_pages_and_finds_send_table(address: str, tmp_path: Path) -> None:
    """The screenshots stay in build/screenshots, for a person to look at."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    with chromium(tmp_path) as tab:
        for number, page in enumerate(OPENED):
            tab.open(address + page)
            assert tab.run("document.querySelector('h1').innerText.length") > 3, page
            assert tab.run("document.documentElement.scrollWidth <= window.innerWidth"), f"{page} is too wide"
            tab.screenshot(SHOTS / f"{number}-{page.strip('/').replace('/', '-') or 'index'}.png")
        tab.open(f"{address}quickstart/?q=send_table")
        found = "[...document.querySelectorAll('.md-search-result__link')].map(each => each.href)"
        links = until(lambda: tab.run(found), "results of the search")
        tab.screenshot(SHOTS / "search.png")
    assert any("reference/kbatch/" in link and link.endswith("send_table") for link in links), links
    assert any("/tables/" in link for link in links), links
