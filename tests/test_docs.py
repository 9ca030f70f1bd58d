"""Tests of the documents: every command in them exists, and those of docs/operating.md work."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
from pathlib import Path
from typing import Final

import pytest

from quotebot.cli import exits, root, terminal
from tests.quotebot.cli.conftest import with_two_dead_letters
from tests.quotebot.parts import copy_data, tampered
from tests.rig import read_ledger

ROOT: Final = Path(__file__).resolve().parent.parent
DOCUMENTS: Final = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
OPERATING: Final = ROOT / "docs" / "operating.md"
OF_THE_SCRIPT: Final = frozenset({"test", "bench", "python", "wheel", "canaries"})  # handled by `./run` itself
ENDLESS: Final = frozenset({"run", "sandbox"})  # checked by their --help only
# preparations of a command, as commands
BEFORE: Final = {
    ("resume",): (("pause", "crm", "--reason", "a test"),),
    ("ops", "cancel"): (("replay", "118"),),
    ("restore",): (("backup", "--to", "copies"),),
    ("quote", "compare"): (("quote", "revise", "Q-2026-0042", "discount 5%", "--as", "U0REP"),),
}


def fences(document: Path, language: str) -> list[str]:
    """Return the lines of every fenced block of one language, `""` for those without."""
    blocks = re.findall(rf"^ *```{language}\n(.*?)^ *```$", document.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [line.strip() for block in blocks for line in block.splitlines()]


def commands(document: Path) -> list[tuple[str, ...]]:
    """Return the arguments of every `./run ...` in a document's blocks."""
    lines = [line.removeprefix("$ ") for language in ("", "console") for line in fences(document, language)]
    found = [tuple(shlex.split(line)[1:]) for line in lines if line.startswith("./run ")]
    return [arguments for arguments in found if arguments[0] not in OF_THE_SCRIPT]


def operating() -> list[tuple[str, ...]]:
    """Return the commands of the page for operators."""
    return [tuple(shlex.split(line)[2:]) for line in fences(OPERATING, "console")]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data folder of a stopped bot with two dead letters."""
    folder = tmp_path_factory.mktemp("documents")
    asyncio.run(with_two_dead_letters(folder))
    return folder / "bot"


@pytest.fixture
def ledger(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of that folder's ledger, at the path where the commands expect it."""
    for name in [name for name in os.environ if name.startswith(("QUOTEBOT_", "SLACK_", "SALESFORCE_"))]:
        monkeypatch.delenv(name)
    copy_data(prepared, tmp_path / "bot")
    monkeypatch.setenv("QUOTEBOT_DATA_DIR", str(tmp_path / "bot"))
    monkeypatch.setenv("QUOTEBOT_CLI_OPERATORS", json.dumps([terminal.user()]))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "bot" / "ledger.db"


def real(arguments: tuple[str, ...], ledger: Path) -> list[str]:
    """Replace the page's example ids by those of the prepared ledger."""
    row = read_ledger(
        ledger,
        "SELECT e.id, e.operation_id, e.aggregate_id, o.correlation_id FROM effects AS e "
        "JOIN operations AS o ON o.id = e.operation_id WHERE e.class = 'crm.create' ORDER BY e.id",
    )[0]
    examples = {
        "118": str(row["id"]),
        "op12": f"op{row['operation_id']}",
        "c-7f91ab12": row["correlation_id"],
        "Q-2026-0042": row["aggregate_id"],
    }
    quote = examples["Q-2026-0042"]
    examples["copies/ledger-20261121T215000Z.db"] = str(next(Path("copies").glob("*.db"), "none"))
    ours = [examples.get(argument, argument).replace("Q-2026-0042", quote) for argument in arguments]
    return [argument for argument in ours if argument != "--wait"]  # no bot runs here


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_command_in_a_document_exists(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in commands(document):
        words = [word for word in arguments if not word.startswith("-")][:2]
        options = [word.partition("=")[0] for word in arguments if word.startswith("--")]
        status = root.run([*words, "--help"])
        told = capsys.readouterr().out
        assert status == exits.OK, arguments
        assert [option for option in options if option not in told] == [], arguments


@pytest.mark.parametrize("arguments", [each for each in operating() if each[0] not in ENDLESS], ids=" ".join)
def test_every_command_for_operators_does_its_work(
    arguments: tuple[str, ...], ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for before in next((steps for start, steps in BEFORE.items() if arguments[: len(start)] == start), ()):
        assert root.run(real(before, ledger)) == exits.OK
    if arguments[:2] == ("dead", "resolve"):  # only an uncertain effect can be resolved
        tampered(ledger, "UPDATE effects SET category = 'uncertain', maybe_sent = 1 WHERE state = 'failed'")
    capsys.readouterr()
    status = root.run(real(arguments, ledger))
    assert status == exits.OK, capsys.readouterr().err


def test_every_command_is_on_the_page_for_operators() -> None:
    told = {arguments[0] for arguments in operating()}
    meta = {"--help", "-h", "--version", "sandbox"}
    assert {name for name in root.app if name not in meta} <= told
