"""The site that `make docs` builds: no warning, every link leads somewhere, and pages load nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import hiddenarm

ROOT = Path(__file__).parents[2]
LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a page loads, where it leads, and the places in it that can be led to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors = {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.add(values.get("id", ""))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADED and LOADED[tag] in values:
            self.loads.append(values[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the command of the Makefile."""
    (line,) = re.findall(r"^docs: setup\n\t\$\(BIN\)/sphinx-build (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    folder = tmp_path_factory.mktemp("site")
    arguments = line.replace("build/docs-cache", str(folder / "cache")).replace("build/docs", str(folder / "html"))
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *arguments.split()], cwd=ROOT, capture_output=True, text=True, timeout=500
    )
    assert "--fail-on-warning" in arguments
    assert done.returncode == 0, done.stderr
    return folder / "html"


def pages(site: Path) -> dict[Path, Page]:
    return {path.resolve(): Page(path) for path in site.rglob("*.html")}


def test_every_document_is_a_page_that_the_first_one_leads_to(site: Path) -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert {site / path.relative_to(ROOT).with_suffix(".html") for path in documents} <= set(site.rglob("*.html"))
    beside = {unquote(link.partition("#")[0]) for link in Page(site / "README.html").links}
    assert {path.relative_to(ROOT).with_suffix(".html").as_posix() for path in (ROOT / "docs").glob("*.md")} <= beside


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    found = pages(site)
    checked = 0
    for path, page in found.items():
        for link in page.links:
            if "://" in link:
                assert link.startswith("https://github.com/pradyunsg/furo"), link  # who made the theme
                continue
            name, _, anchor = link.partition("#")
            target = (path.parent / unquote(name)).resolve() if name else path
            assert target.exists(), f"{path.name}: {link}"
            assert target not in found or unquote(anchor) in found[target].anchors, f"{path.name}: {link}"
            checked += 1
    assert checked > 1000


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for path, page in pages(site).items():
        assert not [target for target in page.loads if "//" in target], path.name
    styles = [path for suffix in ("*.css", "*.js") for path in site.rglob(suffix)]
    assert styles
    for path in styles:
        assert not re.search(r"@import|url\(\s*['\"]?(https?:)?//|fetch\(['\"]https?:", path.read_text()), path.name


def test_the_reference_has_every_public_name(site: Path) -> None:
    """With what its docstring says, not only its name."""
    page = Page(site / "docs" / "api.html")
    for name in hiddenarm.__all__:
        value = getattr(hiddenarm, name)
        assert page.anchors & {f"hiddenarm.{name}", f"{value.__module__}.{name}"}, name
    text = re.sub(r"<[^>]+>", "", (site / "docs" / "api.html").read_text())
    assert "decide_many" in text
    assert str(hiddenarm.LocalFederation.__doc__).splitlines()[0].split("`")[0].strip() in " ".join(text.split())
