"""docs/glossary.md: each word once, in order, and where the code has it. Words that were replaced are gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PACKAGE = ROOT / "src" / "hiddenarm"
DOCS = sorted((ROOT / "docs").glob("*.md"))
REPLACED = ("switchboard", "shelf", "shelves", "vitals", "foresight", "charter", "school", "enrol", "enrolled", "pulse")
"""Words for which there is a better one now."""
ROW = re.compile(r"\| ([a-z ]+) \| ([^|]+) \| `([\w/]+\.py)`(?:, `(\w+)`)? \|")
EMPHASISED = re.compile(r"(?:^|[^*])\*([a-z]+)\*(?!\*)", re.MULTILINE)
NO_TERMS = {"and", "is", "not"}
"""Words that documents emphasise for another reason than that they explain them."""
FORMS = {"activates": "activate", "addressed": "address", "attempts": "attempt", "prepared": "prepare"}
FORMS |= {"payloads": "payload", "programs": "program", "shared": "share", "jobs": ""}
"""Emphasised words that the glossary has in another form; jobs are those of the experiments."""


class Entry(NamedTuple):
    """A word, what it means, the file that has it, and its class or type there."""

    word: str
    meaning: str
    file: str
    name: str


def entries() -> list[Entry]:
    rows = [row for row in (ROOT / "docs" / "glossary.md").read_text().splitlines() if row.startswith("| ")][1:]
    found = [ROW.fullmatch(row) for row in rows]
    assert all(found), [row for row, match in zip(rows, found, strict=True) if not match]
    return [Entry(*(part or "" for part in match.groups())) for match in found if match]


def test_words_are_sorted_and_unique() -> None:
    words = [entry.word for entry in entries()]
    assert len(words) > 50
    assert words == sorted(set(words))


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.word)
def test_the_file_has_the_word_or_defines_its_class(entry: Entry) -> None:
    text = (PACKAGE / entry.file).read_text()
    if entry.name:
        assert re.search(rf"^(class {entry.name}\b|{entry.name}(: TypeAlias)? = )", text, re.MULTILINE)
    else:
        assert re.search(entry.word.replace(" ", r"[\s_]"), text, re.IGNORECASE)


def test_what_documents_explain_is_in_the_glossary() -> None:
    words = {entry.word for entry in entries()} | {""}
    for path in [ROOT / "README.md", *DOCS]:
        text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        for term in EMPHASISED.findall(text):
            assert term in NO_TERMS or FORMS.get(term, term) in words, f"{path.name}: {term}"


def test_words_that_were_replaced_are_gone() -> None:
    pattern = re.compile(rf"(?<![a-z])({'|'.join(REPLACED)})(?![a-z])", re.IGNORECASE)
    assert pattern.search("_MAX_CHARTER_BYTES")
    assert not pattern.search("service/enrolment.py")
    for path in _texts():
        assert not pattern.search(path.read_text()), path
        assert not pattern.search(path.stem), path


def _texts() -> Iterator[Path]:
    for suffix in ("*.py", "*.c", "*.h"):
        yield from PACKAGE.rglob(suffix)
        yield from (path for path in TESTS.rglob(suffix) if path != Path(__file__))  # which lists them
    yield from (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS)
