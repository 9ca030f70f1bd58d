"""Tests of the pages: every link, path and test that they name exists, and no package is missing."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))
PRODUCT: Final = ("quotebot", "ledger", "adapters", "faults")
MADE_LATER: Final = frozenset({"docs/deploy/secrets/SLACK_BOT_TOKEN"})  # by the reader of the page


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text_of(page: Path) -> str:
    """Return a page without its code blocks, which are not its own words."""
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page: Path, link: str) -> bool:
    """Tell whether a link is broken; external links are not followed."""
    path, _, anchor = link.partition("#")
    if re.match(r"[a-z]+:", link):
        return False
    there = (page.parent / path).resolve() if path else page
    return not there.exists() or (anchor != "" and there.suffix == ".md" and anchor not in anchors(there))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text_of(page))
    assert [link for pair in links for link in pair if link and broken(page, link)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_place_a_page_names_is_there(page: Path) -> None:
    named = re.findall(r"`((?:quotebot|ledger|adapters|faults|tests|bench|docs)/[\w./-]*)`", text_of(page))
    assert [place for place in named if not (ROOT / place).exists() and place not in MADE_LATER] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_test_a_page_names_is_there(page: Path) -> None:
    for path, test in re.findall(r"`([\w./-]+\.py)::(\w+)`", text_of(page)):
        module = ast.parse((ROOT / path).read_text("utf-8"))
        assert test in {node.name for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}, path


def test_the_architecture_leaves_no_package_out() -> None:
    told = set(re.findall(r"`([\w/]+/)`", (ROOT / "docs/architecture.md").read_text("utf-8")))
    packages = {
        f"{module.parent.relative_to(ROOT).as_posix()}/" for package in PRODUCT for module in (ROOT / package).rglob("__init__.py")
    }
    assert packages - told == set()


def test_every_page_can_be_reached_from_the_first_one() -> None:
    reached, waiting = set[Path](), [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or not page.exists():
            continue
        reached.add(page)
        links = re.findall(r"\]\(([^)\s#]+\.md)", text_of(page))
        waiting += [(page.parent / link).resolve() for link in links if not re.match(r"[a-z]+:", link)]
    assert [name_of(page) for page in PAGES if page not in reached and page.parent != ROOT] == []


def test_every_decision_says_why_what_and_what_follows() -> None:
    decisions = sorted((ROOT / "docs/decisions").glob("0*.md"))
    assert [int(page.name[:4]) for page in decisions] == list(range(1, len(decisions) + 1))
    for page in decisions:
        assert re.findall(r"^## (.+)$", page.read_text("utf-8"), re.MULTILINE) == [
            "Why it had to be decided",
            "Decision",
            "What follows",
        ]
