from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotebot.commands.registry import REGISTRY
from quotebot.domain.approvals.policy import PolicyDecision
from quotebot.domain.pricing.price_requests import LineRequest
from quotebot.domain.quotes.lifecycle import allowed, may_be_changed
from quotebot.domain.quotes.quote import ApprovalState, Closing, Quote, QuoteState, Sending, SlotState, plain_times
from quotebot.views import approver_card
from quotebot.views.blocks import ButtonValue, parse_button_value
from quotebot.views.card import Card, button_value, status_card
from quotebot.views.messages import command_name
from quotebot.views.pending_buttons import (
    CANCEL,
    CANCEL_COMMAND,
    CHECK,
    CHECK_COMMAND,
    RETRY,
    RETRY_COMMAND,
    PendingCommand,
    PendingEffect,
    command_buttons,
)
from tests.quotebot.parts import POLICY
from tests.quotebot.views.block_kit import message_problems
from tests.quotebot.views.quote_examples import MORNING, decided, example_approval, example_pricing, example_quote, quote_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from syrupy.assertion import SnapshotAssertion

PDF = PendingEffect("PDF", "delivered", "c-7f90")
CRM = PendingEffect("CRM", "delivered", "c-7f91", "0Q0000000000001AAA")
NEEDS_MANAGER = PolicyDecision(("sales_manager",), ("discount 15% (limit 10%)",), blocked=False)
BLOCKED = PolicyDecision(("cfo",), ("discount 45% is over the 40% maximum",), blocked=True)
AUTOMATIC = PolicyDecision((), (), blocked=False)


def texts(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if node.get("type") in ("mrkdwn", "plain_text"):
            yield node
        for child in node.values():
            yield from texts(child)
    if isinstance(node, list):
        for child in node:
            yield from texts(child)


def check_limits(card: Card) -> None:
    assert message_problems(card.text, card.blocks) == []


def elements(card: Card) -> list[dict[str, Any]]:
    return [element for block in card.blocks if block["type"] == "actions" for element in block["elements"]]


def action_ids(card: Card) -> list[str]:
    return [element["action_id"] for element in elements(card)]


def spoken(card: Card) -> str:
    return plain_times("\n".join(text["text"] for text in texts(card.blocks)))


def test_under_dual_control_the_approve_button_opens_a_form_for_the_reason() -> None:
    approval = example_approval()
    dual = replace(approval, slots=(replace(approval.slots[0], dual_control=True),))
    for asked, first in ((approval, "approval.approve"), (dual, "approval.approve_with_reason")):
        card = status_card(example_quote(QuoteState.PENDING_APPROVAL, approval=asked), ())
        assert action_ids(card) == [
            first,
            "approval.request_changes",
            "approval.reject",
            "approval.remind",
            "quote.more",
        ]


@pytest.mark.parametrize("state", list(QuoteState))
def test_the_card_of_each_state_reads_like_this(state: QuoteState, snapshot: SnapshotAssertion) -> None:
    owed = (PDF, CRM) if state in (QuoteState.APPROVED, QuoteState.SENT) else ()
    decision = NEEDS_MANAGER if state is QuoteState.PRICED else None
    card = status_card(quote_in(state), owed, approvers=("U0MANAGER", "U0REP"), decision=decision)
    check_limits(card)
    assert card == snapshot


ENDED = Closing("Too expensive <!here> & late", "U0MANAGER", MORNING)
TOLD = {
    "a sent one": example_quote(QuoteState.SENT, sent=Sending("buyer@acme.example <!channel>", "U0REP", MORNING)),
    "an accepted one": example_quote(QuoteState.ACCEPTED, closing=replace(ENDED, reason=None)),
    "a lost one": example_quote(QuoteState.LOST, closing=ENDED),
    "a cancelled one": example_quote(QuoteState.CANCELLED, closing=ENDED),
    "one whose request lapsed": example_quote(
        QuoteState.PENDING_APPROVAL, approval=decided(ApprovalState.EXPIRED, decided_by=None, decided_role=None)
    ),
    "one that was sent back": example_quote(
        QuoteState.DRAFT, approval=decided(ApprovalState.CHANGES_REQUESTED, decision_reason="Leave SSO out.")
    ),
    "a blocked one": example_quote(pricing=example_pricing("45")),
    "a third version": example_quote(version=3, revised_by="U0REP", revised_at=MORNING),
}


@pytest.mark.parametrize("name", TOLD)
def test_the_card_says_who_did_what_to(name: str, snapshot: SnapshotAssertion) -> None:
    failed = PendingEffect("CRM", "failed", "c-7f91", "field <Term__c> refused")
    card = status_card(TOLD[name], (PDF, failed), decision=BLOCKED if name == "a blocked one" else NEEDS_MANAGER)
    check_limits(card)
    assert card == snapshot


BUTTONS = {  # in reading order; the menu comes last
    QuoteState.DRAFT: ["quote.revise", "quote.resubmit", "quote.cancel"],
    QuoteState.VALIDATED: ["quote.revise", "quote.cancel"],
    QuoteState.PRICED: ["quote.submit", "quote.revise", "quote.cancel"],
    QuoteState.PENDING_APPROVAL: [
        *("approval.approve", "approval.request_changes", "approval.reject"),
        "approval.remind",  # the menu edits and cancels
    ],
    QuoteState.APPROVED: ["quote.finalize", "quote.revise", "quote.cancel"],
    QuoteState.REJECTED: ["quote.revise", "quote.cancel"],
    QuoteState.FINALIZED: ["quote.send", "quote.revise", "quote.cancel"],
    QuoteState.SENT: ["quote.accept", "quote.lose", "quote.revise", "quote.cancel"],
    QuoteState.ACCEPTED: ["quote.show"],
    QuoteState.LOST: ["quote.show"],
    QuoteState.CANCELLED: ["quote.show"],
    QuoteState.EXPIRED: ["quote.show"],
}


@pytest.mark.parametrize("state", list(QuoteState))
def test_buttons_are_exactly_the_transitions_a_person_may_make_now(state: QuoteState) -> None:
    assert action_ids(status_card(quote_in(state), ())) == [*BUTTONS[state], "quote.more"]


LEADS_TO = {  # the state to which each button leads a quote, or its next version
    "quote.submit": QuoteState.PENDING_APPROVAL,
    "quote.resubmit": QuoteState.PENDING_APPROVAL,
    "approval.approve": QuoteState.APPROVED,
    "approval.reject": QuoteState.REJECTED,
    "approval.request_changes": QuoteState.DRAFT,
    "quote.finalize": QuoteState.FINALIZED,
    "quote.send": QuoteState.SENT,
    "quote.accept": QuoteState.ACCEPTED,
    "quote.lose": QuoteState.LOST,
    "quote.cancel": QuoteState.CANCELLED,
}


@pytest.mark.parametrize("state", list(QuoteState))
def test_no_button_is_dead_and_no_arrow_of_a_person_is_without_one(state: QuoteState) -> None:
    card = status_card(quote_in(state), ())
    shown = set(action_ids(card)) - {"quote.more", "quote.show", "approval.remind"}
    in_menu = {"Cancel quote": "quote.cancel", "Edit": "quote.revise"}
    shown |= {in_menu[entry] for entry in menu_of(card) if entry in in_menu}
    assert ("quote.revise" in shown) == may_be_changed(state)
    reached = {LEADS_TO[action] for action in shown - {"quote.revise"}}
    by_itself = {QuoteState.EXPIRED, QuoteState.VALIDATED, QuoteState.PRICED, QuoteState.DRAFT}  # by time, by pricing, by an edit
    if state is QuoteState.PRICED:
        by_itself |= {QuoteState.APPROVED}  # the result of submitting if no approval is needed
    assert reached <= allowed(state)
    assert allowed(state) - by_itself == reached - by_itself


def menu_of(card: Card) -> list[str]:
    (menu,) = [one for one in elements(card) if one["type"] == "overflow"]
    return [entry["text"]["text"] for entry in menu["options"]]


def test_the_menu_offers_what_always_and_the_discount_while_it_may_change() -> None:
    assert menu_of(status_card(quote_in(QuoteState.SENT), ())) == ["Change discount", "How pricing works", "Refresh"]
    assert menu_of(status_card(quote_in(QuoteState.ACCEPTED), ())) == ["How pricing works", "Refresh"]


def test_beside_the_buttons_of_a_decision_the_menu_edits_and_cancels() -> None:
    waiting = quote_in(QuoteState.PENDING_APPROVAL)
    always = ["Change discount", "How pricing works", "Refresh"]
    assert menu_of(status_card(waiting, ())) == ["Edit", *always, "Cancel quote"]
    assert menu_of(status_card(waiting, (), decides=False)) == always


def test_a_card_shows_four_buttons_at_most_besides_the_menu() -> None:
    for state in QuoteState:
        assert len(action_ids(status_card(quote_in(state), ()))) <= 5


def test_a_request_that_waits_can_be_reminded_about_where_it_is_not_decided() -> None:
    shown = action_ids(status_card(quote_in(QuoteState.PENDING_APPROVAL), (), decides=False))
    assert shown == ["approval.remind", "quote.revise", "quote.cancel", "quote.more"]


def test_cancelling_asks_first_what_is_final() -> None:
    (cancel,) = [one for one in elements(status_card(quote_in(QuoteState.PRICED), ())) if one["action_id"] == "quote.cancel"]
    assert cancel["confirm"]["title"]["text"] == "Cancel this quote?"
    assert "Acme · $17,340.00" in cancel["confirm"]["text"]["text"]


def test_the_discount_of_a_quote_counts_those_of_its_lines() -> None:
    lines = (LineRequest("pro", 100, Decimal(50)), LineRequest("sso", 100))
    quote = example_quote(pricing=example_pricing("10", lines))
    listed, net = quote.pricing.list_total, quote.pricing.net_total
    percent = quote.pricing.discount_off_list_percent
    assert percent == round(100 * (listed - net) / listed, 2) > 10
    assert f" · {percent}% off $" in spoken(status_card(quote, ()))
    only_on_lines = replace(quote, pricing=example_pricing("0", lines))
    assert "37.5% off $9,600.00" in spoken(status_card(only_on_lines, ()))
    request = example_approval(reasons=("discount 50% (limit 10%)", "saas margin is under the floor"))
    card = approver_card.asking(replace(only_on_lines, approval=request), approver_card.Ask(POLICY, None, None, (), (), ()))
    assert "*Discount*\n37.5% of $9,600.00" in spoken(card)
    assert "• Discount 50% (limit 10%)\n• Saas margin" in spoken(card)


def test_before_submission_the_card_says_who_would_have_to_approve_and_why() -> None:
    card = status_card(example_quote(), (), decision=NEEDS_MANAGER)
    assert "Needs approval: *Sales Manager* · discount 15% (limit 10%)" in spoken(card)


def test_avoidance_hint_stands_below_the_required_approval_and_price_rows_above_it() -> None:
    shown, easier = (("Total with tax", "$1"),), (("No approval needed with", "10% discount (now 15%) <b>"),)
    said = spoken(status_card(example_quote(), (), decision=NEEDS_MANAGER, figures=shown, easier=easier)).split("\n")
    approval = next(number for number, line in enumerate(said) if "Needs approval: *Sales Manager*" in line)
    assert said[approval + 1] == "💡 No approval needed with: *10% discount (now 15%) &lt;b&gt;*"
    assert said.index("Total with tax: *$1*") < approval


def test_before_submission_the_card_names_the_largest_discount_that_needs_nobody() -> None:
    card = status_card(example_quote(), (), decision=NEEDS_MANAGER, free_discount=Decimal("10.00"))
    assert "No approval needed up to 10% discount" in spoken(card)


def test_a_pending_card_says_which_yes_was_given_and_what_is_missing() -> None:
    both = example_approval(required_roles=("vp_sales", "legal"))
    given = replace(both.slots[1], state=SlotState.APPROVED, decided_by="U0LEGAL", decided_role="legal", decided_at=MORNING)
    approval = replace(both, slots=(both.slots[0], given))
    card = status_card(replace(quote_in(QuoteState.PENDING_APPROVAL), approval=approval), (), approvers=("U0VP",))
    assert "✅ Legal: approved by <@U0LEGAL> (Legal), 21 Nov 2026, 10:31 UTC\nWaiting for <@U0VP>" in spoken(card)


def test_a_request_that_expired_can_be_asked_for_again() -> None:
    expired = decided(ApprovalState.EXPIRED, decided_by=None, decided_role=None)
    card = status_card(replace(quote_in(QuoteState.PENDING_APPROVAL), approval=expired), ())
    assert action_ids(card)[0] == "quote.submit"
    assert "Approval request expired with no decision. Submit to ask again." in spoken(card)


@pytest.mark.parametrize("state", sorted(set(ApprovalState) - {ApprovalState.PENDING}))
def test_every_end_of_a_request_is_told_on_the_card(state: ApprovalState) -> None:
    card = status_card(example_quote(QuoteState.DRAFT, approval=decided(state)), ())
    assert "21 Nov 2026, 10:31 UTC" in spoken(card)


def test_a_quote_that_needs_nobody_says_so_and_can_be_submitted() -> None:
    card = status_card(example_quote(pricing=example_pricing("10")), (), decision=AUTOMATIC)
    assert "No approval needed. The PDF is created right away." in spoken(card)
    assert action_ids(card)[0] == "quote.submit"
    assert {"Approve & create PDF", "Create the PDF?"} <= set(spoken(card).split("\n"))
    assert "Submit for approval" in spoken(status_card(example_quote(), (), decision=NEEDS_MANAGER))


def test_a_blocked_quote_says_why_and_offers_no_button_that_would_be_refused() -> None:
    card = status_card(example_quote(pricing=example_pricing("45")), (), decision=BLOCKED)
    assert "Can't be submitted: discount 45% is over the 40% maximum. Edit the quote to continue." in spoken(card)
    assert action_ids(card) == ["quote.revise", "quote.cancel", "quote.more"]


def test_approve_button_confirms_the_amount_and_every_button_carries_the_version() -> None:
    quote = replace(quote_in(QuoteState.PENDING_APPROVAL), version=3, approval=example_approval(quote_version=3))
    buttons = elements(status_card(quote, ()))[:3]
    assert "$17,340.00" in buttons[0]["confirm"]["text"]["text"]
    assert [button.get("style") for button in buttons] == ["primary", None, "danger"]
    assert {parse_button_value(button["value"]) for button in buttons} == {ButtonValue("Q-2026-0042", 3, "A-2026-0042-v1-1")}


def test_a_decision_names_who_in_which_role_and_when() -> None:
    assert "✅ Approved by <@U0MANAGER> (Sales Manager), 21 Nov 2026, 10:31 UTC" in spoken(
        status_card(quote_in(QuoteState.APPROVED), ())
    )


def test_a_rejection_quotes_its_reason() -> None:
    assert "⛔ Rejected by <@U0MANAGER> (Sales Manager), 21 Nov 2026, 10:31 UTC\n> Too deep for this size.\n> Offer 10%." in spoken(
        status_card(quote_in(QuoteState.REJECTED), ())
    )


def test_a_quote_to_edit_says_who_asked_for_it_above_everything_else() -> None:
    sent_back = decided(ApprovalState.CHANGES_REQUESTED, decision_reason="Leave SSO out.")
    card = status_card(example_quote(QuoteState.DRAFT, approval=sent_back), ())
    banner = plain_times(card.blocks[1]["text"]["text"])
    assert banner.startswith("✏️ Changes requested by <@U0MANAGER> (Sales Manager), 21 Nov 2026, 10:31 UTC\n> Leave SSO out.\n")
    assert banner.endswith("Edit the quote to make a new version you can submit.")
    edit = next(each for block in card.blocks for each in block.get("elements", ()) if each.get("action_id") == "quote.revise")
    assert edit["style"] == "primary"


def test_a_quote_that_was_sent_back_can_be_resubmitted_only_where_people_decide() -> None:
    quote = quote_in(QuoteState.DRAFT)
    (again,) = [each for each in elements(status_card(quote, (), decision=NEEDS_MANAGER)) if each["action_id"] == "quote.resubmit"]
    assert parse_button_value(again["value"]) == ButtonValue("Q-2026-0042", 1, "A-2026-0042-v1-1")
    for decision in (BLOCKED, AUTOMATIC):
        assert action_ids(status_card(quote, (), decision=decision)) == ["quote.revise", "quote.cancel", "quote.more"]


def test_each_of_several_reasons_is_a_line_and_the_only_one_stands_beside_the_roles() -> None:
    several = PolicyDecision(("cfo", "legal"), ("discount 25% (limit 20%)", "liability cap needs Legal"), blocked=False)
    said = spoken(status_card(example_quote(), (), decision=several))
    assert "*Needs approval from CFO and Legal*\n• Discount 25% (limit 20%)\n• Liability cap needs Legal" in said
    assert "Needs approval: *Sales Manager* · discount 15%" in spoken(status_card(example_quote(), (), decision=NEEDS_MANAGER))


def test_an_automatic_approval_says_that_nobody_had_to_decide() -> None:
    approval = decided(ApprovalState.APPROVED, required_roles=(), reasons=(), decided_by=None, decided_role=None)
    card = status_card(example_quote(QuoteState.APPROVED, approval=approval), ())
    assert "✅ Approved automatically: within policy" in spoken(card)


@pytest.mark.parametrize(
    ("owed", "line"),
    [
        ((PendingEffect("CRM", "pending", "c-7f91"),), "⏳ Writing to Salesforce…"),
        (
            (PendingEffect("CRM", "failed", "c-7f91", "field <Term__c> refused"),),
            "⚠️ Not in Salesforce yet. Our ops team has been notified; no action needed from you. Ref c-7f91",
        ),
        (
            (PendingEffect("PDF", "paused", "c-7f90", "Slack refused the token"),),
            "⏸️ PDFs are paused. This one follows automatically.",
        ),
        (
            (PendingEffect("CRM", "paused", "c-7f91", "Login expired.", since=MORNING),),
            "⏸️ Salesforce sync is paused. This quote syncs automatically when it resumes.",
        ),
        ((PDF, CRM), "PDF in this thread · In Salesforce"),
        ((PDF, PendingEffect("CRM", "delivered", "c-7f91")), "PDF in this thread · In Salesforce"),
    ],
)
def test_pending_effects_are_shown_on_the_card_and_never_change_its_state(owed: tuple[PendingEffect, ...], line: str) -> None:
    card = status_card(quote_in(QuoteState.APPROVED), owed)
    check_limits(card)
    assert line in spoken(card)
    assert "✅ Approved, $17,340.00" in card.text


def test_a_degraded_line_goes_away_on_success() -> None:
    quote = quote_in(QuoteState.APPROVED)
    assert "Writing to Salesforce" in spoken(status_card(quote, (PDF, replace(CRM, state="pending", detail=None))))
    assert "Writing to Salesforce" not in spoken(status_card(quote, (PDF, CRM)))


def test_the_same_quote_renders_to_the_same_bytes() -> None:
    quote = quote_in(QuoteState.PENDING_APPROVAL)
    assert json.dumps(status_card(quote, (CRM,)).blocks) == json.dumps(status_card(quote, (CRM,)).blocks)


def long_quote(lines: int) -> Quote:
    pricing = example_pricing()
    template = pricing.lines[0]
    many = tuple(replace(template, position=number, name=f"Product {number}") for number in range(1, lines + 1))
    return example_quote(pricing=replace(pricing, lines=many))


@pytest.mark.parametrize(
    ("lines", "tail"),
    [(20, None), (21, "+ 1 more line, $9,180.00"), (400, "+ 380 more lines, $3,488,400.00")],
)
def test_a_long_quote_is_summarised(lines: int, tail: str | None) -> None:
    card = status_card(long_quote(lines), ())
    check_limits(card)
    shown = card.blocks[2]["text"]["text"].splitlines()
    assert len([row for row in shown if row.startswith("*Product")]) == 20
    assert (shown[-1] if lines > 20 else None) == tail


def test_a_long_quote_links_to_its_pdf_where_all_lines_are() -> None:
    link = "https://quotebot.slack.com/files/U0/F0/q-2026-0042-v1.pdf"
    card = status_card(long_quote(400), (replace(PDF, link=link),))
    check_limits(card)
    assert card.blocks[2]["text"]["text"].endswith(f". <{link}|See all in the PDF>")
    assert f"<{link}|See all in the PDF>" not in spoken(status_card(long_quote(20), (replace(PDF, link=link),)))


@pytest.mark.parametrize("link", ["javascript:alert(1)", "https://x.example/|<!channel>", "https://x.example/ a", ""])
def test_what_is_no_plain_link_is_not_made_one(link: str) -> None:
    card = status_card(long_quote(21), (replace(PDF, link=link),))
    assert link == "" or link not in spoken(card)
    assert card.blocks[2]["text"]["text"].endswith("See all in the PDF")


HOSTILE = "<!channel> & <@U0CFO> <https://evil.example|pay here>\n✅ Approved\u202e"


def test_typed_text_can_neither_mention_nor_link_nor_start_a_line_of_its_own() -> None:
    approval = decided(ApprovalState.REJECTED, decision_reason=HOSTILE, reasons=(HOSTILE,))
    for state in QuoteState:
        quote = example_quote(
            state, account=HOSTILE, approval=approval if state is QuoteState.REJECTED else example_approval(reasons=(HOSTILE,))
        )
        card = status_card(
            quote, (PendingEffect("CRM", "failed", "c-1", HOSTILE),), decision=PolicyDecision(("cfo",), (HOSTILE,), blocked=False)
        )
        everything = card.text + spoken(card)
        assert "<!channel>" not in everything
        assert "<@U0CFO>" not in everything
        assert "<https" not in everything
        assert "\n✅ Approved" not in everything.replace("\n✅ Approved · *", "")
        assert "\u202e" not in everything
        assert all(text["verbatim"] for text in texts(card.blocks) if text["type"] == "mrkdwn")


NASTY = st.text(alphabet=st.sampled_from("<>&*_`\n\u202e\ud800A✅ "), max_size=5_000)


@given(NASTY, NASTY, st.sampled_from(list(QuoteState)), st.integers(0, 30))
def test_no_text_breaks_the_limits(account: str, detail: str, state: QuoteState, approvers: int) -> None:
    pricing = example_pricing()
    lines = tuple(replace(pricing.lines[0], name=detail or "x", net_amount=Decimal("999999999999.99")) for _ in range(30))
    approval = (
        example_approval(reasons=(detail,) * 5)
        if state is QuoteState.PENDING_APPROVAL
        else decided(ApprovalState.REJECTED, decision_reason=detail)
    )
    quote = example_quote(state, account=account, pricing=replace(pricing, lines=lines), approval=approval)
    owed = (PendingEffect("CRM", "failed", "c-7f91", detail),) * 20
    decision = PolicyDecision(("cfo", "legal"), (detail,) * 5, blocked=False)
    check_limits(status_card(quote, owed, approvers=tuple(f"U{number:010d}" for number in range(approvers)), decision=decision))


def test_a_button_value_is_compact_json_that_reads_back() -> None:
    quote = example_quote()
    assert button_value(quote) == '{"v":1,"q":"Q-2026-0042","n":1,"a":null}'
    assert parse_button_value(button_value(quote)) == ButtonValue("Q-2026-0042", 1, None)
    assert parse_button_value(button_value(quote, example_approval())) == ButtonValue("Q-2026-0042", 1, "A-2026-0042-v1-1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        "[" * 1_999,
        " " * 2_001,
        '{"v":2,"q":"Q-2026-0042","n":1,"a":null}',
        '{"v":true,"q":"Q-2026-0042","n":1,"a":null}',
        '{"v":1.0,"q":"Q-2026-0042","n":1,"a":null}',
        '{"v":1,"q":"Q-2026-0042","n":0,"a":null}',
        '{"v":1,"q":"Q-2026-0042","n":"1","a":null}',
        '{"v":1,"q":"q-2026-0042","n":1,"a":null}',
        '{"v":1,"q":42,"n":1,"a":null}',
        '{"v":1,"q":"Q-2026-0042","n":1,"a":7}',
        '{"v":1,"q":"Q-2026-0042","n":1}',
        '{"v":1,"q":"Q-2026-0042","n":1,"a":null,"x":1}',
    ],
)
def test_a_button_value_of_another_version_or_shape_is_none(text: str) -> None:
    assert parse_button_value(text) is None


@given(st.text(max_size=200))
def test_no_button_value_raises(text: str) -> None:
    parse_button_value(text)


def test_the_example_moment_is_the_one_the_expected_texts_name() -> None:
    assert quote_in(QuoteState.APPROVED).approval == decided(ApprovalState.APPROVED, decided_at=MORNING)


def test_card_says_which_lines_are_of_a_bundle() -> None:
    pricing = example_pricing()
    seats, *_ = pricing.lines
    bundled = replace(seats, bundle="starter", bundle_name="Starter <Kit>")
    card = status_card(replace(example_quote(QuoteState.PRICED), pricing=replace(pricing, lines=(bundled, seats))), ())
    first, second = card.blocks[2]["text"]["text"].split("\n")
    assert "*Pro* × 150 (of Starter &lt;Kit&gt;) · " in first  # noqa: RUF001 -- a product
    assert "(of" not in second
    check_limits(card)


@pytest.mark.usefixtures("german")
def test_a_card_in_german_is_within_the_limits() -> None:
    offered = PendingEffect("CRM", "failed", "c-1", "why", effect_id=1, offers=(RETRY, CHECK, CANCEL))
    owed = (
        PDF,
        offered,
        replace(offered, label="CRM status", state="cancelled"),
        replace(offered, label="CRM amount", state="in doubt"),
        replace(offered, label="CRM stage", state="paused"),
        replace(offered, label="CRM PDF", state="pending"),
    )
    for state in QuoteState:
        commands = (PendingCommand("mark sent", "c-2", None, 1, 1, (RETRY_COMMAND, CHECK_COMMAND, CANCEL_COMMAND)),)
        check_limits(status_card(quote_in(state), owed, approvers=("U0VP",), decision=NEEDS_MANAGER, pending=commands))


@pytest.mark.usefixtures("german")
def test_buttons_of_every_kind_of_command_are_named_in_german() -> None:
    quote = quote_in(QuoteState.FINALIZED)
    offers = (RETRY_COMMAND, CHECK_COMMAND, CANCEL_COMMAND)
    named = {kind: command_name(kind) for kind in REGISTRY}
    assert [name for name in named.values() if not name[:1].isupper()] == []  # an English name begins with a small letter
    row = command_buttons(quote, PendingCommand(named["quote.mark_sent"], "c-2", None, 1, 1, offers))
    assert [each["text"]["text"] for each in row["elements"]] == [
        "Erneut versuchen: Als gesendet markieren",
        "Stand prüfen: Als gesendet markieren",
        "Abbrechen: Als gesendet markieren",
    ]


@pytest.mark.usefixtures("german")
def test_a_card_speaks_german() -> None:
    pricing = example_pricing("10")
    said = spoken(status_card(example_quote(QuoteState.SENT, pricing=pricing), (PDF, replace(CRM, state="retrying"))))
    assert "📤 An Kunden gesendet · *" in said
    assert "10\u00a0% Rabatt auf" in said
    assert " · 12 Monate · <@U0REP>" in said
    assert "*Pro* × 150 · 6,00\u00a0$/Monat · *" in said  # noqa: RUF001 -- a product
    assert "⏳ Salesforce antwortet nicht. Weitere Versuche laufen automatisch." in said
    assert "PDF in diesem Thread" in said
    assert "Als gewonnen markieren\nAls verloren markieren\nBearbeiten\nAngebot stornieren" in said
    asked = spoken(status_card(example_quote(pricing=pricing), (), decision=AUTOMATIC))
    assert "📝 Entwurf" in asked
    assert "✅ Keine Freigabe nötig. Das PDF wird sofort erstellt." in asked


FINAL = (QuoteState.ACCEPTED, QuoteState.LOST, QuoteState.CANCELLED, QuoteState.EXPIRED)


@pytest.mark.parametrize("state", FINAL)
def test_a_final_card_is_its_summary_and_a_button_for_the_lines(state: QuoteState) -> None:
    quote, taxed = quote_in(state), (("Tax 19%", "$3,294.60"),)
    folded, whole = status_card(quote, (PDF,), figures=taxed), status_card(quote, (PDF,), figures=taxed, whole=True)
    assert "*Pro*" not in spoken(folded)
    assert "Tax 19%" not in spoken(folded)
    assert " · *$17,340.00* · 15% off " in spoken(folded)
    assert "Approved by <@U0MANAGER>" in spoken(folded)
    assert [each["text"]["text"] for each in elements(folded) if each["type"] == "button"] == ["Show lines"]
    assert "*Pro*" in spoken(whole)
    assert "Tax 19%" in spoken(whole)
    assert action_ids(whole) == ["quote.more"]
    assert "*Pro*" in spoken(status_card(quote, (), buttons=False))


def test_a_discount_of_nothing_has_no_place_on_the_card() -> None:
    said = spoken(status_card(example_quote(pricing=example_pricing("0")), ()))
    assert "%" not in said
    assert "list price" not in said
