"""Tests of `--json`: every command takes it and prints one JSON document with the version of its schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from quotebot.cli import root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cyclopts import App

    from tests.quotebot.cli.conftest import Run


def commands(app: App, *words: str) -> Iterator[tuple[tuple[str, ...], App]]:
    """Yield every command below an app, with the words that call it."""
    inner = [name for name in app if not name.startswith("-")]
    if not inner:
        yield words, app
    for name in inner:
        yield from commands(app[name], *words, name)


def test_every_command_takes_json() -> None:
    found = dict(commands(root.app))
    names = {words: {name for each in app.assemble_argument_collection() for name in each.names} for words, app in found.items()}
    assert len(found) > 60
    assert ("ops", "list") in found
    assert [words for words, given in names.items() if "--json" not in given] == []


@pytest.mark.parametrize(
    "line",
    [
        "pause crm --reason migration",
        "resume crm",
        "gates",
        "ledger migrate",
        "ledger verify",
        "ledger prune --dry-run",
        "audit public-key",
        "config reference",
        "config show",
        "init fresh",
        "completion bash",
        "clock status",
        "policy",
        "metrics",
        "ops list",
        "dead list",
    ],
)
def test_a_command_prints_one_document_with_its_schema_version(line: str, command: Run, dead: Path) -> None:
    if line.startswith("resume"):
        command("pause", "crm", "--reason", "migration")
    done = command(*line.split(), "--json")
    assert (done.returncode, json.loads(done.stdout)["schema_version"]) == (0, 1), (dead, done.stderr)


def test_outcomes_of_pause_and_resume_are_named(command: Run, dead: Path) -> None:
    outcomes = []
    for words in (
        ("pause", "crm", "--reason", "migration"),
        ("pause", "crm", "--reason", "again"),
        ("resume", "crm"),
        ("resume", "pdf"),
    ):
        done = command(*words, "--json")
        outcomes.append((done.returncode, json.loads(done.stdout)["outcome"]))
    assert outcomes == [(0, "paused"), (0, "held already"), (0, "resumed"), (4, "not paused")]
    assert dead.exists()
