"""Tests of typed commands on an existing quote, and of the answer to each unclear one."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quotebot.commands.payloads import (
    REASON_CHARACTERS_MAX,
    RECIPIENT_CHARACTERS_MAX,
    AcceptQuote,
    CancelQuote,
    CloneQuote,
    CreateQuote,
    FinalizeQuote,
    LoseQuote,
    MarkSent,
    ReviseQuote,
    SubmitQuote,
)
from quotebot.commands.queries import OPEN, ListRequest
from quotebot.domain.pricing.engine import LineRequest, PriceRequest
from quotebot.domain.pricing.price_requests import Changes, LineChange
from quotebot.domain.quotes.quote import QuoteState
from quotebot.slack.grammar import TEXT_CHARACTERS_MAX, GrammarProblem, Repair
from quotebot.slack.verbs import (
    VERBS,
    ApprovalReportRequest,
    AuditRequest,
    ChangeRequest,
    CompareRequest,
    ExplainRequest,
    FormRequest,
    HelpRequest,
    OpsRequest,
    ProductsRequest,
    QuoteFormRequest,
    ReportRequest,
    SimulateRequest,
    StatusRequest,
    WhichQuote,
    parse,
    typed_creation,
)
from quotebot.views.card import DISCOUNT, LOSE, REVISE, SEND
from tests.quotebot.views.quote_examples import CATALOGUE

if TYPE_CHECKING:
    from quotebot.slack.verbs import Meaning

Q = "Q-2026-0042"
CHANGES = Changes(
    (LineChange("set", "pro", 1_200), LineChange("add", "sso", 1_500), LineChange("remove", "support")), 24, Decimal("12.5")
)
ADDED = Changes((LineChange("add", "pro", 10), LineChange("add", "sso", 1_500)))
REQUEST = PriceRequest((LineRequest("pro", 10),), 12, Decimal(0))


def read(text: str) -> Meaning:
    return parse(text, "C0SALES", CATALOGUE)


def problem(text: str) -> str:
    result = read(text)
    assert isinstance(result, GrammarProblem), result
    return result.message


def change(payload: Any, version: int | None = None) -> ChangeRequest:
    return ChangeRequest(Q, version, payload)


MEANINGS: dict[str, Any] = {
    "": HelpRequest(),
    "help": HelpRequest(),
    f"status {Q}": StatusRequest(Q),
    f"APPROVE {Q}": StatusRequest(Q),
    f"reject {Q}": StatusRequest(Q),
    f"submit {Q}": change(SubmitQuote()),
    f"submit {Q}: ": change(SubmitQuote()),
    f"submit {Q} v2: they need SSO": change(SubmitQuote("they need SSO"), 2),
    f"finalize {Q}": change(FinalizeQuote()),
    "finalise  q-2026-0042  V3": change(FinalizeQuote(), 3),
    f"accept {Q}": change(AcceptQuote()),
    f"accepted {Q} v2": change(AcceptQuote(), 2),
    f"won {Q}": change(AcceptQuote()),
    f"cancel {Q}": change(CancelQuote()),
    f"cancel {Q}: not wanted: at all": change(CancelQuote("not wanted: at all")),
    f"lost {Q}: too expensive": change(LoseQuote("too expensive")),
    f"lose {Q} v1 :too expensive": change(LoseQuote("too expensive"), 1),
    f"sent {Q} to Ann &amp; Bob": change(MarkSent("Ann & Bob")),
    f"send {Q} v2 TO buyer@acme.example": change(MarkSent("buyer@acme.example"), 2),
    f"revise {Q}: 1,200 pro, add 1,500 sso, remove support; term 24m; discount 12.5%": change(ReviseQuote(CHANGES)),
    f"edit {Q}: set 1200 Pro Plan, +1500 sso, without premium support; discount 12.5%; term 2y": change(ReviseQuote(CHANGES)),
    f"revise {Q} v2: discount 0%": change(ReviseQuote(Changes(discount_percent=Decimal(0))), 2),
    f"add-line {Q}: 10 pro, 1,500 sso": change(
        ReviseQuote(Changes((LineChange("add", "pro", 10), LineChange("add", "sso", 1_500))))
    ),
    f"addline {Q} v2 5 pro": change(ReviseQuote(Changes((LineChange("add", "pro", 5),))), 2),
    f"discount {Q}: 12.5%": change(ReviseQuote(Changes(discount_percent=Decimal("12.5")))),
    f"discount {Q} v3 0": change(ReviseQuote(Changes(discount_percent=Decimal(0))), 3),
    f"audit {Q}": AuditRequest(Q),
    f"history {Q}": AuditRequest(Q),
    "ops": OpsRequest(),
    "products": ProductsRequest(),
    "catalog Premium": ProductsRequest("Premium"),
    "price 10 pro": SimulateRequest(None, None, REQUEST),
    "report discounts": ReportRequest("discounts", "rep"),
    "report win loss by month": ReportRequest("win-loss", "month"),
    "reports Cycle-Time by product": ReportRequest("cycle-time", "product"),
    "report approvals": ApprovalReportRequest("role"),
    "report approvals by rep": ApprovalReportRequest("rep"),
    f"revise {Q} to: 10 pro": change(ReviseQuote(request=REQUEST)),
    f"clone {Q}": CloneQuote(Q, "C0SALES"),
    f"copy {Q} v2 for Beta: Ltd": CloneQuote(Q, "C0SALES", 2, "Beta: Ltd"),
    f"compare {Q}": CompareRequest(Q),
    f"diff {Q} v1": CompareRequest(Q, 1),
    f"compare {Q} v1 V3": CompareRequest(Q, 1, 3),
    f"explain {Q}": ExplainRequest(Q),
    f"explain {Q} v2 line 3": ExplainRequest(Q, 2, 3),
    f"simulate {Q}": SimulateRequest(Q, None, None),
    f"preview {Q}: discount 20%": SimulateRequest(Q, Changes(discount_percent=Decimal(20)), None),
    "simulate: 10 pro": SimulateRequest(None, None, REQUEST),
    "price for Acme: 10 pro": SimulateRequest(None, None, REQUEST, "Acme"),
    "list": ListRequest(),
    "ls mine": ListRequest(),
    "list all": ListRequest(mine=False),
    "list open": ListRequest(states=OPEN),
    "list Pending Approval": ListRequest(states=frozenset({QuoteState.PENDING_APPROVAL})),
    "list pending": ListRequest(states=frozenset({QuoteState.PENDING_APPROVAL})),
    "list all sent lost for Acme Corp page 2": ListRequest(
        mine=False, states=frozenset({QuoteState.SENT, QuoteState.LOST}), account="Acme Corp", page=2
    ),
    "list Allied Openers": ListRequest(account="Allied Openers"),  # the names begin like keywords
    "list all won": ListRequest(mine=False, states=frozenset({QuoteState.ACCEPTED})),
    "list all waiting for approval": ListRequest(mine=False, states=frozenset({QuoteState.PENDING_APPROVAL})),
    "list &lt;@U0OTHER|ann&gt; draft": ListRequest(
        mine=False, owner="U0OTHER", states=frozenset({QuoteState.DRAFT, QuoteState.PRICED})
    ),
}


@pytest.mark.parametrize("text", MEANINGS)
def test_what_is_typed_means_this(text: str) -> None:
    assert read(text) == MEANINGS[text]


@pytest.mark.parametrize("text", ["new for Acme: 10 pro", "NEW: for Acme: 10 pro", "create : for Acme: 10 pro"])
def test_a_creation_is_read_with_and_without_a_colon_after_its_verb(text: str) -> None:
    assert read(text) == CreateQuote("Acme", REQUEST, "C0SALES")


@pytest.mark.parametrize("text", ["new", "new:", "start :"])
def test_a_creation_of_nothing_yet_asks_for_the_form(text: str) -> None:
    assert read(text) == FormRequest()


def test_what_follows_the_verb_of_a_creation_is_found_behind_a_colon_too() -> None:
    assert typed_creation("new: for Acme: 10 prp") == "for Acme: 10 prp" == typed_creation("new for Acme: 10 prp")


def test_every_verb_but_help_and_list_without_more_says_what_is_missing() -> None:
    said = {verb: read(verb) for verb in VERBS}
    assert {verb for verb, meaning in said.items() if not isinstance(meaning, GrammarProblem)} == {
        *("help", "list", "ls", "ops", "products", "catalog", "catalogue"),
        *("delegate", "ooo"),
        *("new", "start", "create"),  # opens a form
        *(verb for verb, meaning in said.items() if meaning == WhichQuote(verb)),  # shows the person's quotes
    }
    assert {verb for verb, meaning in said.items() if isinstance(meaning, GrammarProblem)} == {"report", "reports", "digest"}


PROBLEMS: dict[str, str] = {
    "report": "The reports are discounts, cycle-time, win-loss, pipeline, approvals",
    "report approvals by product": "approvals: by role, rep or month",
    "finalize 42": '"42" isn\'t a quote number',
    "finalize acme": '"acme" isn\'t a quote number',
    f"finalize {Q} now": 'I didn\'t understand "now"',
    f"accept {Q} v": 'I didn\'t understand "v"',
    f"lost {Q} too expensive": "Put a colon before the reason",
    f"cancel {Q} please": "Put a colon before the reason",
    f"submit {Q} they need SSO": f"Put a colon before the note: `/quote submit {Q}: they need SSO`",
    f"submit {Q}: {'x' * (REASON_CHARACTERS_MAX + 1)}": "That note is too long (500 characters max)",
    f"lost {Q}: {'x' * (REASON_CHARACTERS_MAX + 1)}": "too long (500 characters max)",
    f"sent {Q} to ": f"`/quote sent {Q} to buyer@acme.example`",
    f"sent {Q} buyer": f"`/quote sent {Q} to buyer@acme.example`",
    f"sent {Q} to {'x' * (RECIPIENT_CHARACTERS_MAX + 1)}": "too long (200 characters max)",
    f"revise {Q} 200 pro": f"What should change? Example: `/quote revise {Q}: 200 pro`",
    f"revise {Q}:": "What should change?",
    f"revise {Q}: 200 prro": "Did you mean pro?",
    f"revise {Q}: remove": '"" isn\'t in the catalog.',
    f"revise {Q}: -5 pro": '"-5 pro" isn\'t a quantity',
    f"revise {Q}: 1.5 pro": "needs a whole quantity",
    f"revise {Q}: pro": "has no quantity",
    f"revise {Q}: discount soon; term later": "isn't a term",
    f"revise {Q}: term 12m; term 24m": "You gave term twice",
    f"revise {Q} to: 5 prro": "Did you mean pro?",
    f"add-line {Q}": "What should change?",
    f"add-line {Q}: remove sso": "add-line only adds products",
    f"add-line {Q}: 5 sso; discount 5%": "add-line only adds products",
    f"add-line {Q}: 5 prro": "Did you mean pro?",
    f"discount {Q}: soon": "isn't a discount",
    f"audit {Q} v1": f"Try `/quote audit {Q}`",
    "ops now": 'I didn\'t understand "now". Try `/quote ops`.',
    f"clone {Q} Beta": 'I didn\'t understand "Beta"',
    f"clone {Q} for": 'I didn\'t understand "for"',
    f"clone {Q} for {'x' * 101}": "too long (100 characters max)",
    f"compare {Q} 1 2": 'I didn\'t understand "1 2"',
    f"explain {Q} line": 'I didn\'t understand "line"',
    f"simulate {Q}: 5 prro": "Did you mean pro?",
    "simulate: 5 prro": "Did you mean pro?",
    "simulate 5 prro": "Did you mean pro?",
    "list page 0": "Pages are 1 to 10,000",
    f"list {'x' * 101}": "That customer's name is too long",
    f"finalise_ {Q}": "Did you mean `/quote finalise`?",
    f"accpt {Q}": "Did you mean `/quote accept`?",
    f"revize {Q}: 5 pro": "Did you mean `/quote revise`?",
    "lits": "Did you mean `/quote list`?",
    "x" * (TEXT_CHARACTERS_MAX + 1): "2,048 characters max",
}


@pytest.mark.parametrize("text", PROBLEMS)
def test_what_is_unclear_is_refused_with_what_to_type_instead(text: str) -> None:
    assert PROBLEMS[text] in problem(text)


def test_all_problems_of_a_revision_are_told_at_once() -> None:
    said = problem(f"revise {Q}: 200 prro, -5 sso, remove supprt; term soon")
    assert said.count("•") == 4


FORMS = {
    f"revise {Q}": (None, REVISE),
    f"edit {Q} v2": (2, REVISE),
    f"discount {Q}": (None, DISCOUNT),
    f"lost {Q}": (None, LOSE),
    f"lost {Q} v3: ": (3, LOSE),
    f"sent {Q}": (None, SEND),
}


@pytest.mark.parametrize("text", FORMS)
def test_a_verb_that_needs_more_opens_its_form(text: str) -> None:
    asked = read(text)
    assert isinstance(asked, QuoteFormRequest)
    assert (asked.quote_id, asked.version, asked.action_id) == (Q, *FORMS[text])
    assert f"/quote {VERBS[text.split(maxsplit=1)[0]]} {Q}" in asked.problem


def test_a_misspelt_product_of_a_revision_is_corrected_by_a_click() -> None:
    noted = read(f"revise {Q}: add 10 prro; customer-note prro forever")
    assert isinstance(noted, GrammarProblem)
    assert noted.repair == Repair(f"revise {Q}: add 10 pro; customer-note prro forever", "Use Pro")
    asked = read(f"revise {Q} v2: 200 prro, remove supprt")
    assert isinstance(asked, GrammarProblem)
    assert asked.repair == Repair(f"revise {Q} v2: 200 pro, remove support", "Use this")
    assert read(asked.repair.text) == change(
        ReviseQuote(Changes((LineChange("set", "pro", 200), LineChange("remove", "support")))), 2
    )


COMMAS = {
    f"revise {Q}: discount 12%, remove sso": f"revise {Q}: discount 12%; remove sso",
    f"revise {Q}: remove sso, 20 prro, discount 12%, term 24m": f"revise {Q}: remove sso, 20 pro; discount 12%; term 24m",
    f"revise {Q} v2: payment net 45, 200 pro, 10 sso": f"revise {Q} v2: payment net 45; 200 pro, 10 sso",
    f"revise {Q} to: 10 pro; tax DE, term 24m": f"revise {Q} to: 10 pro; tax DE; term 24m",
    f"simulate {Q}: term 1y, discount 12.5%": f"simulate {Q}: term 1y; discount 12.5%",
    "new for Acme: 1,500 pro, discount 12%": "new for Acme: 1,500 pro; discount 12%",
}


@pytest.mark.parametrize("text", COMMAS)
def test_a_comma_where_a_semicolon_belongs_is_named_and_corrected_by_a_click(text: str) -> None:
    asked = read(text)
    assert isinstance(asked, GrammarProblem)
    assert "Put a semicolon before " in asked.message
    assert f"`/quote {COMMAS[text]}`" in asked.message
    assert asked.repair is not None
    assert asked.repair.text == COMMAS[text]
    assert not isinstance(read(asked.repair.text), GrammarProblem)


@pytest.mark.parametrize(
    "body", ["discount 12%, 15%", "discount 12%, thanks", "discount 12,5%", "note see mail, term 12m; 10 zebra"]
)
def test_a_comma_that_separates_no_change_is_left(body: str) -> None:
    asked = read(f"revise {Q}: {body}")
    assert isinstance(asked, GrammarProblem)
    assert (asked.repair, "semicolon" in asked.message) == (None, False)


@pytest.mark.parametrize("before", [f"revise {Q}", f"revise {Q} v3", f"simulate {Q}"])
def test_a_number_after_a_product_is_offered_as_quantity_and_as_addition(before: str) -> None:
    asked = read(f"{before}: Pro 1,200")
    assert isinstance(asked, GrammarProblem)
    assert asked.message == "Do you mean the new quantity or an addition?"
    assert asked.choices == (
        Repair(f"{before}: 1200 pro", "Set Pro to 1,200"),
        Repair(f"{before}: add 1200 pro", "Add 1,200 Pro"),
    )
    assert not any(isinstance(read(each.text), GrammarProblem) for each in asked.choices)


@pytest.mark.parametrize("body", ["pro 1.500", "gizmo 20", "pro 20, sso 30", "pro 0", "20", "pro"])
def test_what_is_no_product_with_a_number_behind_it_offers_no_quantity(body: str) -> None:
    asked = read(f"revise {Q}: {body}")
    assert isinstance(asked, GrammarProblem)
    assert asked.choices == ()


IN_GERMAN = {
    "finalise Q-2026-0042 tomorrow": "„tomorrow“ ist nicht verständlich. Vorschlag: `/quote finalize Q-2026-0042`.",
    "submti Q-2026-0042": "„submti“ ist nicht bekannt. War `/quote submit` gemeint?",
    "cancel Q-2026-0042 duplicate": "Vor den Grund gehört ein Doppelpunkt: `/quote cancel Q-2026-0042: duplicate`",
    "list page 99999": "Die Seiten gehen von 1 bis 10.000. Beispiel: `/quote list page 2`.",
    "new for Acme: 10.5 pro": "„10.5 pro“ braucht eine ganze Zahl als Menge, z. B. 1500, ohne Tausendertrennzeichen.",
    "new for Acme: 10 pro; term soon": "„soon“ ist keine Laufzeit. Beispiele: `term 12m` oder `term 1y`.",
    "new for Acme: 10 pro; billing monhtly": "Die Abrechnung „monhtly“ ist nicht bekannt. War `billing monthly` gemeint?",
}


@pytest.mark.usefixtures("german")
@pytest.mark.parametrize("text", IN_GERMAN)
def test_an_answer_in_german_repeats_what_is_typed_in_english(text: str) -> None:
    asked = read(text)
    assert isinstance(asked, GrammarProblem)
    assert IN_GERMAN[text] in asked.message


@pytest.mark.usefixtures("german")
def test_what_is_typed_means_the_same_in_german() -> None:
    assert read("list won") == ListRequest(states=frozenset({QuoteState.ACCEPTED}))
    unclear = read("revise Q-2026-0042: pro 1200")
    assert isinstance(unclear, GrammarProblem)
    assert unclear.message == "Ist die neue Menge gemeint oder eine zusätzliche?"
    assert unclear.choices[1] == Repair("revise Q-2026-0042: add 1200 pro", "1.200 Pro hinzufügen")
    misspelt = read("revise Q-2026-0042: 200 prro")
    assert isinstance(misspelt, GrammarProblem)
    assert misspelt.repair == Repair("revise Q-2026-0042: 200 pro", "Pro verwenden")


@given(st.sampled_from(sorted(VERBS)), st.sampled_from(["", f"{Q} ", f"{Q}: "]), st.text(max_size=60))
@example("sent", f"{Q} ", "to <!channel>")
@example("clone", f"{Q} ", "<!here> you")
@example("revise", f"{Q}: ", "5 <@U0REP>")
def test_no_text_raises_or_smuggles_a_mention_into_the_answer(verb: str, about: str, rest: str) -> None:
    result = read(f"{verb} {about}{rest}")
    if isinstance(result, GrammarProblem):
        assert "<!" not in result.message
        assert "<@" not in result.message


@pytest.mark.parametrize("unit", ["add 1 ", "remove x,", "1,", "; ", ": ", "v1 ", "page 1 ", "sent "])
@pytest.mark.parametrize("head", [f"revise {Q}: ", "list ", f"simulate {Q}: ", f"clone {Q} "])
def test_the_longest_hostile_text_is_answered_at_once(head: str, unit: str) -> None:
    text = (head + unit * TEXT_CHARACTERS_MAX)[:TEXT_CHARACTERS_MAX]
    began = time.process_time()
    read(text)
    assert time.process_time() - began < 1.0
