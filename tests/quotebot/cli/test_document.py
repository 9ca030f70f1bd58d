"""Tests of `quotebot document ...` as people run it, with a real renderer."""

from __future__ import annotations

import ctypes.util
import io
import json
from typing import TYPE_CHECKING

import pypdf
import pytest

from quotebot.cli import root

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

pytestmark = pytest.mark.skipif(ctypes.util.find_library("pango-1.0") is None, reason="Pango is not installed")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the document folder of an installation without a ledger, in the current folder."""
    found = tmp_path / "documents"
    found.mkdir()
    monkeypatch.setenv("QUOTEBOT_DATA_DIR", str(tmp_path / "bot"))
    monkeypatch.setenv("QUOTEBOT_DOCUMENT_FOLDER", str(found))
    monkeypatch.chdir(tmp_path)
    return found


def test_lint_names_an_unknown_field_its_template_and_each_missing_clause(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "own.html").write_text("<html><body><p>{{ document.no_such }}</p></body></html>")
    (folder / "documents.toml").write_text('[clauses.net_60.en]\ntitle = "Net 60"\ntext = "Payment within 60 days."\n')
    assert root.run(("document", "lint", "--json")) == 3
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert "template own, language de: The quote template failed: 'dict object' has no attribute 'no_such'." in problems
    assert not [problem for problem in problems if "detailed" in problem or "net_60" in problem]
    assert any("special term exclusivity has no clause in language en" in problem for problem in problems)


def test_preview_writes_a_file_with_a_part_of_ones_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "_closing.html").write_text("<p>Signed electronically by {{ document.seller_name | upper }}</p>")
    (folder / "style.css").write_text("h1 { color: #ff0000 }")
    assert root.run(("document", "preview", "--language", "de")) == 0
    made = folder.parent / "Quote Q-2026-0001 v1 - Sample Customer Ltd.pdf"
    assert capsys.readouterr().out == f"{made.name}: 1 page\n"
    text = pypdf.PdfReader(io.BytesIO(made.read_bytes())).pages[0].extract_text()
    assert "Signed electronically by YOUR COMPANY" in text
    assert "Angebot" in text


def test_preview_of_an_unknown_template_or_quote_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert root.run(("document", "preview", "--template", "gone")) == 64
    assert "There is no template 'gone'; there are detailed and summary. Nothing was written." in capsys.readouterr().err
    assert root.run(("document", "preview", "nonsense")) == 64
    assert not list(folder.parent.glob("*.pdf"))


def test_shipped_template_is_printed_as_a_start(command: Run) -> None:
    shown = command("document", "template", "_closing")
    assert (shown.returncode, "{{ document.acceptance }}" in shown.stdout) == (0, True)
    assert command("document", "template", "gone").returncode == 64
