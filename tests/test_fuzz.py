"""Fuzz tests of every entry point: no exception, an answer of bounded size, and time linear in the size of the input.

Inputs are a head and a unit that is repeated, from tests/data/fuzz.json and from hypothesis. The time for an input is compared
with the time for its first quarter, both in processor time and within the entry point's own limit.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from adapters.failures import AdapterError
from adapters.llm import api as llm
from adapters.salesforce import errors
from adapters.salesforce.calls import soql_beginning, soql_containing, soql_text
from adapters.slack import api as slack
from ledger.operator.backup import BackupError, read_manifest
from quotebot.cli.catalog_files import YamlError, read_yaml
from quotebot.domain.approvals.policy_document import PolicyError, parse_policy
from quotebot.domain.catalogue.rulesets import RulesetError, parse_ruleset_json, parse_ruleset_toml
from quotebot.domain.catalogue.sheets import read_sheet
from quotebot.observability import logs
from quotebot.slack import grammar, listeners, message_text, payloads, verbs
from quotebot.slack.connections import Link, Links
from quotebot.slack.crm_menus import _sought
from quotebot.slack.drafts import draft_of_message
from quotebot.slack.form_input import Form, read_form
from quotebot.slack.receiver import envelope_id_of
from quotebot.views import blocks, builder, confirmations, forms, messages
from quotebot.views.dead_letter_card import parse_dead_letter_value
from quotebot.views.forms import read_choice, remembered
from quotebot.views.list_card import parse_question
from quotebot.views.pending_buttons import parse_pending_command_value, parse_pending_effect_value
from tests.quotebot.parts import RULES
from tests.quotebot.views.quote_examples import MORNING, RULESET, example_quote

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS: Final[dict[str, list[str]]] = json.loads((Path(__file__).parent / "data" / "fuzz.json").read_text("utf-8"))
GROWTH_MAX: Final = 7.0  # for four times the input: linear work takes four times as long
QUICK_SECONDS: Final = 0.03  # too short for a comparison
ANSWER_CHARACTERS_MAX: Final = 20_000
CATALOGUE = RULESET.catalogue
QUOTE = example_quote()


class Shape(BaseModel):
    name: str


def slash(text: str) -> object:
    return verbs.parse(text, "C0DEALS", CATALOGUE)


def message(text: str) -> object:
    plain = listeners._MENTIONS.sub(" ", text, count=1).strip()
    asked = verbs.parse(plain, "C0DEALS", CATALOGUE, grammar.MESSAGE_CHARACTERS_MAX)
    found = message_text.read(plain, CATALOGUE)
    return asked, None if found is None else message_text.asked_back(found)


def thread(text: str) -> object:
    return message_text.proposed(message_text.with_number(text, QUOTE), QUOTE, RULES, MORNING)


def shortcut(text: str) -> object:
    draft = draft_of_message(text[: grammar.MESSAGE_CHARACTERS_MAX], CATALOGUE)
    return len(json.dumps(builder.create_form("C0DEALS", RULESET, draft))) < ANSWER_CHARACTERS_MAX


def form(text: str) -> object:
    said: list[object] = []
    views = (
        builder.create_form(None, RULESET, lookup=True, opportunities=True),
        builder.revise_form(QUOTE, RULESET),
        builder.discount_form(QUOTE),
        forms.send_form(QUOTE, contacts=True),
        forms.lose_form(QUOTE),
        forms.cancel_form(QUOTE),
    )
    for view in views:
        blocks = [block["block_id"] for block in view["blocks"] if block["type"] == "input"]
        for most in (20, 100, 500, 2_900, len(text)):
            entered = {block_id: {block_id: {"type": "plain_text_input", "value": text[:most]}} for block_id in blocks}
            said.append(read_form(Form({**view, "root_view_id": "V1", "state": {"values": entered}}, RULES, MORNING, QUOTE)))
        metadata = {**view, "private_metadata": text, "root_view_id": "V1", "state": {"values": {}}}
        said.append(read_form(Form(metadata, RULES, MORNING, QUOTE)))
    return len(str(said)) < 30 * ANSWER_CHARACTERS_MAX, forms.parse_rejection({"reason": {"reason": {"value": text}}})


def button(text: str) -> object:
    readers = (
        blocks.parse_button_value,
        blocks.parse_menu_value,
        parse_question,
        parse_dead_letter_value,
        parse_pending_command_value,
        parse_pending_effect_value,
    )
    others = (confirmations.parse_token, confirmations.parse_typed, message_text.parse_applied, remembered, read_choice)
    body = {"actions": [{"action_id": "quote.submit", "value": text, "selected_option": {"value": text}}]}
    return [read(text) for read in (*readers, *others)], payloads.button(body), payloads.menu(body)


class Inbox:
    """Receiver that accepts every envelope."""

    def take(self, envelope: dict[str, Any], link: Link) -> None:
        """Ignore the envelope."""

    def take_oversized(self, frame: str, size: int, link: Link) -> None:
        del size, link
        envelope_id_of(frame)


LOOP = asyncio.new_event_loop()


def frame(text: str) -> object:
    links = Links(None, "", Inbox(), clock=None, draw=lambda low, _: low)  # type: ignore[arg-type] # only frames are read
    link = Link(None, LOOP.create_future())  # type: ignore[arg-type]
    whole = '{"envelope_id":"E1","payload":' + json.dumps(text) + "}"
    return [links._take_text(link, each) for each in (received(text), whole)], envelope_id_of(text)


def received(text: str) -> str:
    """Return text after a round trip through UTF-8."""
    return text.encode("utf-8", "replace").decode()


def catalogue(text: str) -> object:
    problems: list[Any] = []
    read_sheet("a.csv", text.encode("utf-8", "replace"), ("sku", "name"), ("sku",), problems)
    said: list[object] = [str(problem)[:1_000] for problem in problems[:5]]
    for read in (read_yaml, parse_ruleset_toml, parse_ruleset_json):
        try:
            read(received(text))
        except (YamlError, RulesetError) as error:
            said.append(str(error)[:1_000])
    return said


def policy(text: str) -> object:
    try:
        return parse_policy(received(text))
    except PolicyError as error:
        return str(error)


def answers(text: str) -> object:
    raw = text.encode("utf-8", "replace")
    said: list[object] = [slack._parsed(raw) is None]
    for read in (lambda: llm._content(raw), lambda: llm._in_shape(Shape, text)):
        try:
            said.append(len(read()) if isinstance(read(), str) else None)  # type: ignore[arg-type]
        except AdapterError as error:
            said.append(str(error))
    refusal = errors.SalesforceRefusal.read(400, [{"errorCode": text, "message": text}])
    return said, len(refusal.code), refusal.failure()


def menu(text: str) -> object:
    typed = _sought({"value": text})
    return [spell(typed) for spell in (soql_text, soql_beginning, soql_containing)]


def manifest(text: str) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.json"
        path.write_bytes(text.encode("utf-8", "replace"))
        try:
            return str(read_manifest(path))
        except BackupError as error:
            return str(error).replace(folder, "")


def log_line(text: str) -> object:
    return len(logs.redact(text)) <= 11 * len(text) + 11, messages.one_line(text) is not None


ENTRIES: Final[dict[str, tuple[Callable[[str], object], int]]] = {
    "slash text": (slash, grammar.TEXT_CHARACTERS_MAX),
    "message": (message, grammar.MESSAGE_CHARACTERS_MAX),
    "thread": (thread, grammar.MESSAGE_CHARACTERS_MAX),
    "message shortcut": (shortcut, 40_000),
    "forms": (form, 2_900),
    "what is typed into a menu": (menu, 40_000),
    "button values and private metadata": (button, 100_000),
    "frames": (frame, 200_000),
    "catalogue files": (catalogue, 20_000),
    "policy and settings files": (policy, 20_000),
    "answers of other systems": (answers, 40_000),
    "manifests of backups": (manifest, 300_000),
    "log lines": (log_line, 20_000),
}


def seconds(read: Callable[[str], object], text: str) -> float:
    started = time.process_time()
    read(text)
    return time.process_time() - started


def repeated(head: str, unit: str, tail: str, size: int) -> str:
    return (head + unit * (size // len(unit) + 1))[: size - len(tail)] + tail


def check(entry: str, head: str, unit: str, tail: str = "") -> None:
    read, most = ENTRIES[entry]
    text = repeated(head, unit, tail, most)
    started = time.process_time()
    said = str(read(text))
    whole = time.process_time() - started
    if whole > QUICK_SECONDS:
        quarter = repeated(head, unit, tail, most // 4)
        ratios = sorted(seconds(read, text) / seconds(read, quarter) for _ in range(3))
        assert ratios[1] < GROWTH_MAX, f"{entry}: {ratios} for {head!r} and {unit!r} ({whole:.2f} s)"
    assert len(said) <= max(ANSWER_CHARACTERS_MAX, 4 * 4_096), f"{entry} answers {len(said)} characters to {head!r} and {unit!r}"


@pytest.mark.parametrize("entry", ENTRIES)
def test_seeds_are_read_in_linear_time_with_a_bounded_answer(entry: str) -> None:
    for head in [""] if entry in ("message", "thread") else SEEDS["heads"][::5]:
        for unit in SEEDS["units"]:
            check(entry, head, unit)


@pytest.mark.parametrize("entry", ["slash text", "message", "thread", "message shortcut", "forms"])
def test_signs_of_a_line_before_another_word_are_read_in_linear_time(entry: str) -> None:
    for unit in ("@", " at 1", " because ", "(optional", "(a=", "- 1%"):
        check(entry, "revise Q-2026-0001: 10 pro ", unit, " x")


UNITS = st.lists(st.sampled_from(SEEDS["units"]) | st.text(min_size=1, max_size=3), min_size=1, max_size=4).map("".join)


@pytest.mark.parametrize("entry", ENTRIES)
@settings(max_examples=12, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@example(head="", unit="\ud800")
@given(head=st.sampled_from(SEEDS["heads"]) | st.text(max_size=20), unit=UNITS)
def test_any_repeated_text_is_read_in_linear_time_with_a_bounded_answer(entry: str, head: str, unit: str) -> None:
    check(entry, head, unit)


@pytest.mark.parametrize("entry", ENTRIES)
@settings(max_examples=25, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(
    text=st.text(max_size=200)
    | st.recursive(
        st.none() | st.text(max_size=5) | st.integers() | st.floats(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["v", "q", "n", "a", "t", "c", "l", "d", "type", "payload"]), inner, max_size=4)
        ),
        max_leaves=8,
    ).map(json.dumps)
)
def test_any_text_is_answered_without_an_exception(entry: str, text: str) -> None:
    ENTRIES[entry][0](text)
