"""The documentation builds as a site without a warning, and its pages point at what exists."""

import html.parser
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))

needs_mkdocs = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None,
    reason="mkdocs-material is not installed (extra docs)",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr, built.stderr
    return folder


class Page(html.parser.HTMLParser):
    """What a built page loads, links to and can be linked to."""

    def __init__(self, path):
        super().__init__()
        self.loaded, self.links, self.anchors = [], [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given["id"]} if given.get("id") else set()
        if tag in ("script", "img", "source") and given.get("src"):
            self.loaded.append(given["src"])
        if tag == "link" and given.get("rel") == "stylesheet":
            self.loaded.append(given["href"])
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])


@needs_mkdocs
@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_is_built_and_its_links_lead_somewhere(site, page):
    path = site / page.with_suffix(".html")
    found = Page(path)
    for link in [*found.loaded, *found.links]:
        if re.match(r"https?://", link):
            assert link not in found.loaded, f"{link} is loaded from elsewhere"
            continue
        name, _, anchor = link.partition("#")
        target = path if not name else (path.parent / name).resolve()
        target = target / "index.html" if target.is_dir() else target
        assert target.is_file(), link
        if anchor and target.suffix == ".html":
            assert anchor in Page(target).anchors or anchor == "__", link


@needs_mkdocs
def test_every_page_is_in_the_navigation_and_the_search(site):
    shown = Page(site / "index.html").links
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    for page in PAGES:
        assert page.with_suffix(".html").as_posix() in shown or page.name == "index.md", page
        assert f'"location":"{page.with_suffix(".html").as_posix()}' in index, page


def test_a_page_has_one_title_and_no_broken_table():
    for page in PAGES:
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        assert len(re.findall(r"^# ", prose, re.M)) == 1, page
        for table in re.findall(r"(?:^\|.*\n)+", prose, re.M):
            cells = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
            assert len(cells) == 1, f"{page}: a table's rows differ in length\n{table}"
