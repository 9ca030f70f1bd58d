"""Tests of accessibility without sight or colours: text beside blocks, and a word beside every sign."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest

SNAPSHOTS = sorted(Path(__file__).parents[1].glob("*/__snapshots__/*.ambr"))
SIGNS_MIN = 20  # at least one state in each, twice
WORD = re.compile(r"[^\W\d_]{2,}")


def is_sign(letter: str) -> bool:
    return unicodedata.category(letter) == "So"


def signs(snapshot: Path) -> list[str]:
    """Return every line with a sign on a card or a form; a line of text is a line of the file."""
    return [line for line in snapshot.read_text(encoding="utf-8").replace("\\n", "\n").splitlines() if any(map(is_sign, line))]


@pytest.mark.parametrize("snapshot", SNAPSHOTS, ids=lambda path: path.stem)
def test_every_sign_has_its_word_in_the_same_line(snapshot: Path) -> None:
    assert [line for line in signs(snapshot) if not WORD.search(line.replace("'text'", ""))] == []


def test_cards_contain_symbols_and_each_card_has_a_fallback_text_of_its_own() -> None:
    (cards,) = [path for path in SNAPSHOTS if path.stem == "test_card"]
    assert len(signs(cards)) >= SIGNS_MIN
    written = cards.read_text(encoding="utf-8")
    assert len(re.findall(r"^ {4}text='Quote Q-\S+(?: v\d+)? for Acme: \S+ [A-Z]", written, re.MULTILINE)) == written.count("Card(")
