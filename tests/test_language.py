"""Language of the tree: standard terms in names, docstrings, comments, pages and commit subjects.

The word list is a glossary: the left side was found in the tree once, the right side is the term of the field. A word that is a
term of the domain somewhere is allowed there, with its reason.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

CODE: Final = ("quotebot", "ledger", "adapters", "faults", "bench", "tests")
HEADLESS: Final = re.compile(r"(What|Who|Whoever|Whose|Whether|How|Where|When|Why|Which|Whatever|Those who|So that)\b(?!.*\?$)")
GLOSSARY: Final = {
    "owed": "pending effect",
    "owe": "enqueue",
    "owing": "pending effect",
    "deed": "effect, call",
    "deeds": "effects, calls",
    "foresee": "precompute",
    "foreseen": "precomputed",
    "foresight": "precomputation, replay preview",
    "steering": "operator action",
    "hasten": "retry now",
    "weather": "fault injection",
    "zygote": "fork server",
    "told": "notified",
    "hear": "receive",
    "keeper": "manager",
    "nudge": "wake-up",
    "tally": "counters",
    "weigh": "adjust",
    "bury": "fail, dead-letter",
    "grave": "dead letter",
    "doubt": "uncertain",
    "whisper": "ephemeral reply",
    "pressing": "contended",
    "breath": "pause",
    "outsiders": "external users",
    "stranger": "external user",
    "planted": "seeded",
    "remains": "snapshot",
    "warmth": "warm-up",
    "reception": "Slack surface",
    "errand": "task",
}
# A name may use a word of the glossary here, because there it is a term of the domain or of a vendor.
TERMS: Final = {
    "steer": "the stored kind of a command, effect.steer",
    "doubt": "the outcome of an attempt as the ledger stores it, and an open question of an extraction",
    "stranger": "is_stranger is Slack's field",
    "planted": "a settings file that an attacker planted",
    "outsiders": "people outside a channel or an organization, in tests of access",
}
PHRASES: Final = re.compile(
    r"\b(whoever|who (?:comes|waits|writes|asks|reads|holds)|what (?:comes|waits|was there)|so that nobody|let go|let by|a breath"
    r"|the one (?:in front|behind)|owes?|owed|deed|weather)\b",
    re.IGNORECASE,
)
QUOTED: Final = re.compile(r"`[^`]*`|\"[^\"]*\"|--deed\b")  # a name, a text or an option, which the sentence talks about
TEST_NAME_CHARACTERS_MAX: Final = 80
SUBJECT_CHARACTERS_MAX: Final = 72
PLAIN_SINCE: Final = "42c1c49c"  # subjects of earlier commits stay as they are


class Definition(NamedTuple):
    """A module, class or function. The syntax trees are not kept: millions of nodes would slow every garbage collection."""

    kind: type[ast.AST]
    name: str
    line: int
    docstring: str


@functools.cache
def sources(checkout: Path) -> list[tuple[str, list[Definition], str]]:
    """Return the path of each module, the module itself with its classes and functions, and its text."""
    found = []
    for folder in CODE:
        for path in sorted((checkout / folder).rglob("*.py")):
            text = path.read_text("utf-8")
            found.append((path.relative_to(checkout).as_posix(), list(definitions(ast.parse(text))), text))
    return found


def definitions(node: ast.AST) -> Iterator[Definition]:
    """Yield a node's definition and those in its blocks: no expression holds one."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield Definition(type(node), getattr(node, "name", ""), getattr(node, "lineno", 1), ast.get_docstring(node) or "")
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, block, ()):
            yield from definitions(child)


def docstrings(found: Sequence[Definition]) -> Iterator[tuple[int, str]]:
    return ((each.line, each.docstring) for each in found if each.docstring)


def tokens(name: str) -> list[str]:
    return [token.lower() for part in name.split("_") for token in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", part)]


def private_words(name: str) -> list[str]:
    return [f"{word} -> {GLOSSARY[word]}" for word in tokens(name) if word in GLOSSARY and word not in TERMS]


def test_docstrings_open_with_a_noun_phrase_or_a_verb(checkout: Path) -> None:
    found = [
        f"{path}:{line} {text.splitlines()[0]}"
        for path, nodes, _ in sources(checkout)
        for line, text in docstrings(nodes)
        if HEADLESS.match(text.splitlines()[0])
    ]
    assert found == []


def test_names_of_modules_classes_and_functions_use_standard_terms(checkout: Path) -> None:
    found = []
    for path, nodes, _ in sources(checkout):
        if path.startswith(("tests/", "bench/")):
            continue
        named = [(1, path.rpartition("/")[2].removesuffix(".py"))]
        named += [(node.line, node.name) for node in nodes if node.kind is not ast.Module]
        found += [f"{path}:{line} {name}: {word}" for line, name in named for word in private_words(name)]
    assert found == []


def test_prose_uses_standard_phrases(checkout: Path) -> None:
    found = []
    for path, nodes, text in sources(checkout):
        comments = [
            (number, comment.group(1))
            for number, row in enumerate(text.splitlines(), 1)
            if (comment := re.search(r"(?:^|\s)#\s(.+)$", row)) and not comment.group(1).startswith(("noqa", "type:"))
        ]
        if path != "tests/test_language.py":
            prose = [*docstrings(nodes), *comments]
            found += [f"{path}:{line} {hit}" for line, said in prose for hit in PHRASES.findall(QUOTED.sub("", said))]
    for page in sorted([*checkout.glob("*.md"), *(checkout / "docs").rglob("*.md")]):
        if page.name != "FAULTS.md":  # written by the long run
            text = QUOTED.sub("", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL))
            found += [f"{page.relative_to(checkout)} {hit}" for hit in PHRASES.findall(text)]
    assert found == []


def test_names_of_tests_are_short(checkout: Path) -> None:
    found = [
        node.name
        for _, nodes, _ in sources(checkout)
        for node in nodes
        if node.kind in (ast.FunctionDef, ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and len(node.name) > TEST_NAME_CHARACTERS_MAX
    ]
    assert found == []


def test_one_class_name_means_one_thing(checkout: Path) -> None:
    places = defaultdict(list)
    for path, nodes, _ in sources(checkout):
        product = path.startswith(("quotebot/", "ledger/", "adapters/")) and not path.startswith("quotebot/sandbox/")
        if product and not path.endswith("verify_quotebot_proof.py"):  # stands alone: it is shipped with each bundle
            for node in nodes:
                if node.kind is ast.ClassDef and not node.name.startswith("_"):
                    places[node.name].append(path)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_commit_subjects_are_short_and_use_standard_terms(checkout: Path) -> None:
    log = ["git", "log", "--no-merges", "--format=%s", f"{PLAIN_SINCE}..HEAD"]
    done = subprocess.run(log, cwd=checkout, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a checkout with its history")
    subjects = done.stdout.splitlines()
    assert [subject for subject in subjects if len(subject) > SUBJECT_CHARACTERS_MAX or subject.endswith(".")] == []
    assert [subject for subject in subjects if HEADLESS.match(subject) or PHRASES.search(QUOTED.sub("", subject))] == []
