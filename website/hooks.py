"""What mkdocs calls (its `hooks`): the reference is added to the pages, links out of docs/ lead to the
repository, and llms.txt is written beside the site.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

from website import commands, llms, reference

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.nav import Navigation
    from mkdocs.structure.pages import Page

REPOSITORY = "https://github.com/kbatch/kbatch/blob/main"
# Programs beside the pages; the site shows none.
_PROGRAMS = re.compile(r"\]\((examples/\w+\.py)\)")
_pages: list[Page] = []  # in the order of the navigation


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the reference."""
    for path, text in {**reference.pages(), commands.PATH: commands.page()}.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Keep the pages for llms.txt."""
    _pages[:] = nav.pages
    return nav


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with addresses in the repository for files that are not in the site."""
    outside = "../" * (page.file.src_uri.count("/") + 1)
    markdown = re.sub(rf"\]\({re.escape(outside)}([^./])", rf"]({REPOSITORY}/\1", markdown)
    return _PROGRAMS.sub(rf"]({REPOSITORY}/docs/\1)", markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Write llms.txt, and llms-full.txt with the text of all pages."""
    folder = Path(config.site_dir)
    folder.joinpath("llms.txt").write_text(llms.index(_pages))
    folder.joinpath("llms-full.txt").write_text(llms.full(_pages))
