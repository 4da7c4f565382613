"""How Sphinx builds the site of `make docs`: from the README, which is its first page, and the documents that it lists.

The source folder is the root of the repository, so that links between documents are the same on the site and in the
source. Nothing has to be listed twice: the navigation is made from the README's last part.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pygments.lexers.special import TextLexer

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "src"))

project = "hiddenarm"
copyright = "hiddenarm contributors"
release = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/results/*.md"]
exclude_patterns = [".*", "build", "dist", "examples", "src", "tests"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # a page may begin below the level of its title
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"hiddenarm {release}"
html_copy_source = False
html_show_sphinx = False
html_additional_pages = {"index": "to_first_page.html"}
templates_path = ["templates"]

LINK = re.compile(r"^- \[[^\]]+\]\((\S+?)\.md\)|; \[[^\]]+\]\((\S+?)\.md\)", re.MULTILINE)
API = re.compile(r"^<!-- members: (\S+)(.*?) -->$", re.MULTILINE)


def setup(app: Sphinx) -> None:
    app.connect("source-read", complete)
    app.connect("autodoc-process-docstring", escape)
    app.connect("build-finished", copy_results)
    app.add_lexer("mermaid", TextLexer)  # diagrams are shown as they are written


def complete(app: Sphinx, page: str, source: list[str]) -> None:
    """Add what a reader of the source does not need: the navigation, and the signatures of the API."""
    if page == "README":
        source[0] += navigation(source[0])
    if page == "docs/reproducing":
        source[0] += toctree("", ["results/README"])
    if page == "docs/results/README":
        source[0] = re.sub(r"\[([^\]]+)\]\((index\.html)\)", r'<a href="\2">\1</a>', source[0])
    source[0] = API.sub(lambda found: members(found[1], found[2].split()), source[0])


def copy_results(app: Sphinx, error: Exception | None) -> None:
    """The page of a full run is none of Sphinx's: it is shown as it is, with its figures and tables."""
    if error is None:
        kept = shutil.ignore_patterns("*.md")
        shutil.copytree(ROOT / "docs" / "results", app.outdir / "docs" / "results", ignore=kept, dirs_exist_ok=True)


def escape(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain text: a bar in them is a magnitude, not the markup of docutils."""
    lines[:] = ["`".join(part.replace("|", r"\|") for part in line.split("`")) for line in lines]


def navigation(readme: str) -> str:
    """The README's lists of documents, as those beside every page."""
    parts = re.findall(r"^(To [\w ]+):$(.*?)(?=^To |^#)", readme.split("## Documents")[1], re.MULTILINE | re.DOTALL)
    return "".join(toctree(caption, ["".join(link) for link in LINK.findall(items)]) for caption, items in parts)


def toctree(caption: str, pages: list[str]) -> str:
    lines = ["", ":::{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), "", *pages, ":::", ""]
    return "\n".join(lines)


def members(module: str, names: list[str]) -> str:
    """The classes, functions and errors of a module, by their docstrings."""
    lines = ["```{eval-rst}"]
    for name in names:
        kind = "class" if name[0].isupper() else "function"
        lines += [f".. auto{kind}:: {module}.{name}", "   :members:" if kind == "class" else "", ""]
    return "\n".join([*lines, "```"])
