"""Tests of the help: every command that it names is understood, and its blocks are within Slack's limits."""

from __future__ import annotations

import re

import pytest

from quotebot.domain.language import _
from quotebot.slack.grammar import GrammarProblem
from quotebot.slack.verbs import VERBS, parse
from quotebot.views import help_messages
from tests.quotebot.views.block_kit import message_problems
from tests.quotebot.views.quote_examples import CATALOGUE

TYPED = [field["text"].strip("`") for block in help_messages.all_commands() for field in block["fields"][::2]]


def typed(text: str) -> str:
    """Return a command as a person types it, from its line in the list."""
    text = re.sub(r" \[.*", "", text.removeprefix("/quote ")).replace("Q-...", "Q-2026-0042")
    return text.replace("@colleague", "<@U0CFO>")


@pytest.mark.parametrize("text", TYPED)
def test_every_listed_command_is_understood(text: str) -> None:
    assert not isinstance(parse(typed(text), "C0SALES", CATALOGUE), GrammarProblem)


def test_every_verb_is_listed() -> None:
    assert {VERBS[first] for text in TYPED if (first := typed(text).split()[0]) in VERBS} == set(VERBS.values()) - {"help"}


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        (help_messages.help_text(), help_messages.help_blocks()),
        (help_messages.HELLO, help_messages.start_blocks(help_messages.HELLO)),
        (help_messages.WELCOME, help_messages.start_blocks(help_messages.WELCOME)),
        ("All commands", help_messages.all_commands()),
    ],
)
def test_help_is_within_the_limits_of_a_message(text: str, blocks: list[dict[str, object]]) -> None:
    assert message_problems(text, blocks) == []


@pytest.mark.usefixtures("german")
def test_help_in_german_is_within_the_limits_and_keeps_the_commands() -> None:
    help_in_german = help_messages.help_blocks()
    texts = {
        help_messages.help_text(): help_in_german,
        _(help_messages.WELCOME): help_messages.start_blocks(_(help_messages.WELCOME)),
        "Alle Befehle": help_messages.all_commands(),
    }
    assert [message_problems(text, blocks) for text, blocks in texts.items()] == [[], [], []]
    assert help_in_german[3]["text"]["text"] == "*Freigeben*\nFreigeber entscheiden mit den Schaltflächen der Angebotskarte"
    labels = [each["text"]["text"] for each in help_in_german[-1]["elements"]]
    assert labels == ["Neues Angebot", "Meine Angebote", "Warten auf Freigabe", "Alle Befehle"]
    assert [field["text"].strip("`") for block in help_messages.all_commands() for field in block["fields"][::2]] == TYPED
